"""Everything that is run before a change is trusted, to its end whatever fails on the way; one summary last.

``python tests/lanes.py test plain oldest wheel colab``: these lanes in this order.
A lane is a few steps, a step a command.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import uuid
from collections import deque
from pathlib import Path
from typing import IO, NamedTuple
from xml.etree import ElementTree

import psutil

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHON = str(Path(sys.executable))
JOBS = os.environ.get("JOBS", "2")
BUILD = ROOT / "build"

#: As many of what a failed test, or a failed step, said last are said again below the summary.
LINES = 15

#: Seconds that a step may take, a lane, and all of them together: four times as long as on two quiet cores, but for the
#: last. Continuous integration ends everything after 90 minutes, without a word. pyproject.toml has those of a test.
STEP, LANE, ALL = 45 * 60.0, 60 * 60.0, 80 * 60.0

#: No GPU is seen: `make gpu` sees it. One thread a process: two processes share two cores.
ON_CPU = {
    "CUDA_VISIBLE_DEVICES": "",
    "MKL_NUM_THREADS": "1",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

#: What libraries can be told to imitate: a processor without vector extensions. Compilers do not follow.
PLAIN = ON_CPU | {
    "ATEN_CPU_CAPABILITY": "default",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX_Usable,-AVX2_Usable,-FMA_Usable,-AVX512F_Usable,-AVX2,-FMA,-AVX512F",
    "MKL_CBWR": "COMPATIBLE",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "NPY_DISABLE_CPU_FEATURES": "",  # of this processor: see plain()
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Prescott",
}

TWO_THREADS = ON_CPU | dict.fromkeys(("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2")

#: What computes and what judges; the rest does not depend on the processor.
OPERATORS, ACCURACY = (
    tuple(sorted(str(file.relative_to(ROOT)) for name in names for file in ROOT.glob(f"tests/*/test_{name}.py")))
    for names in (("op", "layers"), ("accuracy",))
)


class Step(NamedTuple):
    """A command, and what it sees of the machine."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]


def module(*arguments: str) -> tuple[str, ...]:
    """A module of the Python that runs this."""
    return (PYTHON, "-m", *arguments)


def tests(*arguments: str) -> tuple[str, ...]:
    """pytest on all cores: each has a part of the list, and who has finished takes from the others."""
    return module("pytest", "-p", "tests.limits", "-n", JOBS, "--dist", "worksteal", *arguments)


def notebooks(environment: dict[str, str]) -> Step:
    """Strict: every output of every cell is what the notebook says. The cells of a notebook stay together."""
    # before a test's limit: nbval interrupts the cell, which says where it was
    options = ("--nbval", "--nbval-current-env", "--nbval-cell-timeout", "600", "--ignore", "book/_build")
    return Step("notebooks", (*tests("--dist", "loadfile"), *options, "book"), environment)


def plain() -> dict[str, str]:
    """The environment of a plain processor: NumPy wants to be told exactly what this one has."""
    code = "from numpy._core._multiarray_umath import __cpu_dispatch__ as d, __cpu_features__ as f\n"
    code += "print(*(name for name in d if f[name]))"
    found = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    return PLAIN | {"NPY_DISABLE_CPU_FEATURES": found}


def wheel(folder: str, *options: str) -> list[Step]:
    """Build the wheel and install it into an environment."""
    file = f"build/wheel/{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}-py3-none-any.whl"
    here = ("pip", "install", "--python", f"{folder}/bin/python", "--reinstall-package", PROJECT["name"])
    return [
        Step("build", module("hatchling", "build", "-t", "wheel", "-d", "build/wheel"), {}),
        Step("install", module("uv", *here, *options, file), {}),
    ]


def gcc_11() -> dict[str, str]:
    """g++ 11, which Colab has, as the g++ on the PATH; where there is none, it is said and the usual one serves."""
    found = shutil.which("g++-11")
    if found is None:
        print("There is no g++-11 here: the simulator is tested with the usual g++.")
        return {}
    folder = BUILD / "g++-11"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "g++").unlink(missing_ok=True)
    (folder / "g++").symlink_to(found)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def lanes(name: str) -> list[Step]:
    """The steps of a lane."""
    if name == "checks":
        return [
            Step("ruff", module("ruff", "check", "."), {}),
            Step("format", module("ruff", "format", "--check", "."), {}),
            Step("mypy", module("mypy", "-p", "companion", "-p", "book._tools"), {}),
            Step("gate", module("book._tools.gate"), {}),
        ]
    if name == "test":
        return [
            *lanes("checks"),
            notebooks(ON_CPU),
            Step(
                "tests",
                tests("-m", "not gpu", "-rs", "--durations", "40", "--doctest-modules", "companion", "tests"),
                ON_CPU,
            ),
        ]
    if name == "plain":
        on_torch = ("-m", "not gpu and not simulator and not compiler")
        return [
            notebooks(plain()),
            Step("operators", tests(*on_torch, *OPERATORS, *ACCURACY), plain()),
            Step("ledger", tests("tests/study/test_claims.py", "tests/claims"), plain()),
            Step("two threads", tests(*on_torch, *OPERATORS), TWO_THREADS),
        ]
    if name == "oldest":
        command = (str(ROOT / ".venv-oldest/bin/python"), "-m", "pytest", "-n", JOBS, "-p", "no:cacheprovider")
        # its compiler is too old: OLDEST_COMPILER in companion/operators/choice.py
        options = ("-W", "ignore::DeprecationWarning", "-m", "not gpu and not compiler")
        return [
            Step("operators", (*command, *options, *OPERATORS, *ACCURACY, "tests/operators/test_operators.py"), ON_CPU)
        ]
    if name == "wheel":
        empty = module("uv", "venv", "--quiet", "--clear", "--python", PYTHON, ".venv-wheel")
        return [
            Step("environment", empty, {}),
            *wheel(".venv-wheel", "--constraint", "requirements.lock"),
            Step("example", (str(ROOT / ".venv-wheel/bin/python"), "-I", "tests/bare.py"), ON_CPU),
        ]
    if name == "colab":
        python = str(ROOT / ".venv-colab/bin/python")
        # the checkout's tests, for what only the compiler of this torch gets wrong
        compiled = (python, "-m", "pytest", "-n", JOBS, "-p", "no:cacheprovider", "-m", "compiler and not gpu")
        return [
            *wheel(".venv-colab", "--no-deps"),  # as the first cell of a copy does
            Step("copies", module("book._tools.colab", "--out", "build/colab"), {}),
            Step("chapters", (python, "-I", "tests/colab.py", "chapters", "build/colab"), ON_CPU),
            Step("kernels", (python, "-I", "tests/colab.py", "kernels"), ON_CPU),
            Step("compiler", (*compiled, *OPERATORS), ON_CPU),
            Step("g++ 11", tests("tests/simulator"), ON_CPU | gcc_11()),
        ]
    raise SystemExit(f"lanes: got {name!r}, allowed are checks, test, plain, oldest, wheel, colab")


def failures(report: Path) -> list[str]:
    """Of pytest's report in XML what failed, and why."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        for problem in (*case.iterfind("failure"), *case.iterfind("error")):
            lines = (problem.text or problem.get("message", "")).splitlines()
            why = [line for line in lines if line.startswith("E  ")] or lines
            found += [f"--- {case.get('classname')}::{case.get('name')}", *(line[:300] for line in why[-LINES:])]
    return found


def run(lane: str, step: Step, limit: float = STEP) -> tuple[int, list[str]]:
    """Run a step for so many seconds at most, show what it says; its status and, if it failed, what decided that."""
    report = BUILD / "reports" / f"{lane}-{step.name}.xml"
    report.unlink(missing_ok=True)
    caches = {
        # not compiled for one torch and read by another
        "TORCHINDUCTOR_CACHE_DIR": str(BUILD / "inductor" / lane),
        # even where Python is told to keep no bytecode: tests start many processes, and without it torch takes each 5 s
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(BUILD / "bytecode"),
    }
    given = [f"--junitxml={report}", "-o", "junit_logging=no"] if "pytest" in step.command else []
    mark = {"LANES_STEP": uuid.uuid4().hex}
    last: deque[str] = deque(maxlen=LINES)
    try:
        process = subprocess.Popen(
            [*step.command, *given],
            cwd=ROOT,
            env=os.environ | caches | step.environment | {"PYTHONFAULTHANDLER": "1"} | mark,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return 127, [str(error)]
    reader = threading.Thread(target=show, args=(process.stdout, last), daemon=True)
    reader.start()
    why = []
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        why = [f"It was not over after {limit:.0f} s and was ended; above is where it hung. Before, it said:", *last]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGABRT)  # with PYTHONFAULTHANDLER: the stacks of all threads
        time.sleep(5)  # until they are written
    finally:
        for each in marked(mark):  # also what tests left, such as browsers
            with contextlib.suppress(psutil.Error):
                each.kill()
    status = process.wait()
    reader.join(10)
    if why:
        return status or 1, why
    if status == 0:
        return 0, []
    return status, (failures(report) if report.exists() else []) or list(last)


def show(output: IO[str], last: deque[str]) -> None:
    """Print what a step says, line by line."""
    for line in output:
        print(line, end="", flush=True)
        last.append(line.rstrip())


def marked(mark: dict[str, str]) -> list[psutil.Process]:
    """The processes that a step has started, and they in turn, also those that left its group, as browsers do."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if mark.items() <= process.environ().items():
                found.append(process)
    return found


def main(names: list[str]) -> int:
    """Run all steps of the lanes, then say how each of them ended, and why."""
    summary, reasons = [], []
    deadline = time.monotonic() + ALL
    for lane in names:
        end = min(deadline, time.monotonic() + LANE)
        for step in lanes(lane):
            print(f"\n=== {lane}: {step.name} ===", flush=True)
            start = time.monotonic()
            status, why = run(lane, step, min(STEP, max(end - start, 1.0)))
            verdict = "passed" if status == 0 else f"FAILED ({status})"
            summary.append(f"{lane:8} {step.name:14} {verdict:14} {time.monotonic() - start:6.0f} s")
            if status != 0:
                reasons += ["", f"=== why {lane}: {step.name} failed ===", *why]
    print("\n" + "\n".join(["=== summary ===", *summary, *reasons]))
    return int(bool(reasons))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
