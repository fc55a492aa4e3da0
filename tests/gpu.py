"""All that a machine with a GPU is asked for, in one go: ``make gpu``.

The doctor, the proof of every kernel, the tests, compute-sanitizer where it is installed, the benchmarks, and the
shortest of the experiments' full presets. Whatever fails, the next step runs. It ends with one file, which names the
GPU and no person, host or folder: build/gpu.json. Whoever sends it is the first to say how the kernels do.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from companion.proofs import verdicts
from companion.study.experiments import provenance
from tests import lanes
from tests.lanes import Step, module

#: Seconds that a step may take: a perceptron's 238 trainings want the most.
LIMIT = 2 * 3600.0
#: Kernels that are computed by plain torch, because they did not prove themselves, are no success.
PROOF = """
import companion
from companion.operators import operators
from companion.proofs import verdicts
companion.warmup()
place = verdicts.place_of(verdicts.torch.device("cuda"))
verdicts = {operator.name: verdicts.known(operator, place) for operator in operators()}
for name, verdict in verdicts.items():
    print(f"{name}: {'proved' if verdict.holds else verdict.said} ({verdict.seconds:.0f} s)")
raise SystemExit(not all(verdict.holds for verdict in verdicts.values()))
"""
SANITIZER = "tests/cuda/test_sanitizer.py"


def steps() -> list[Step]:
    """In the order in which they are worth having, should the machine be taken away."""
    tests = module("pytest", "-m", "gpu", "-rs")
    watched = [Step("sanitizer", (*tests, SANITIZER), {})] if shutil.which("compute-sanitizer") else []
    return [
        Step("doctor", module("companion", "doctor"), {}),
        Step("proof", (lanes.PYTHON, "-c", PROOF), {}),
        Step("tests", (*tests, "--ignore", SANITIZER, "tests"), {}),
        *watched,
        Step("benchmarks", module("companion", "bench", "all"), {}),
        Step(
            "experiment",
            module(
                "companion", "experiments", "run", "dnrt-cifar10", "--preset", "full", "--device", "cuda", "--resume"
            ),
            {},
        ),
    ]


def machine() -> dict[str, Any]:
    """What computed: versions, models of the hardware, the driver."""
    return provenance.environment("cuda") | {"driver": verdicts.driver()}


def results(folder: Path, since: float) -> dict[str, Any]:
    """What the steps have measured: the finished results of this folder that are not older."""
    files = [file for file in sorted(folder.glob("*.json")) if file.stat().st_mtime >= since]
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def main(runs: Path = lanes.ROOT / "runs") -> int:
    """Run all steps and write the file."""
    begun = time.time()
    ended = []
    for step in steps():
        print(f"\n=== {step.name} ===", flush=True)
        start = time.monotonic()
        status, why = lanes.run("gpu", step, LIMIT)
        said = [verdicts.one_line(line) for line in why]
        ended.append({"step": step.name, "status": status, "seconds": round(time.monotonic() - start), "why": said})
    report = {"machine": machine(), "steps": ended, "results": results(runs, begun)}
    file = lanes.BUILD / "gpu.json"
    file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print("\n".join(f"{each['step']:12} {'passed' if each['status'] == 0 else 'FAILED'}" for each in ended))
    print(
        f"What this GPU has to say is in {file.relative_to(lanes.BUILD.parent)}; CONTRIBUTING.md says where to send it."
    )
    return int(any(each["status"] for each in ended))


def without() -> int:
    """Say why nothing is run; a failure where there is a GPU, and only this PyTorch cannot use it."""
    if not driven():
        print("There is no GPU here that PyTorch can use; nothing was run.")
        return 0
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        print(f"PyTorch says: {error}")
    print(
        f"There is a GPU here, and PyTorch {torch.__version__} cannot use it; nothing was run. A driver older than 580 "
        "knows no CUDA 13: make an environment with torch<2.11 and .[dev,gpu-cuda12], as environment.yml says for "
        "CUDA 12, and run `python -m tests.gpu` in it."
    )
    return 1


def driven() -> bool:
    """Whether the driver of an NVIDIA GPU runs here, whatever PyTorch makes of it."""
    if Path("/proc/driver/nvidia/version").is_file():
        return True
    found = shutil.which("nvidia-smi")
    return found is not None and subprocess.run([found], capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main() if torch.cuda.is_available() else without())
