"""compute-sanitizer watches every kernel of APA and LayerAct; ``tests/dac`` has a test of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import companion
from companion import simulator
from companion.apa import kernel as apa_kernel
from companion.cuda.launch import Kernels
from companion.layeract import kernel as layeract_kernel
from tests.cuda.exercise import EXERCISES

KERNELS = {"apa": apa_kernel.KERNELS, "layeract": layeract_kernel.KERNELS}


@pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))
@pytest.mark.parametrize("mechanism", EXERCISES)
def test_the_exercise_launches_every_kernel(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = set()
    launch = Kernels.launch

    def recorded(self: Kernels, name: str, *arguments: Any) -> None:
        launched.add(name)
        launch(self, name, *arguments)

    monkeypatch.setattr(Kernels, "launch", recorded)
    with companion.backend("simulator"):
        EXERCISES[mechanism]("cpu")
    assert launched == set(KERNELS[mechanism].names)


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("check", ["memcheck", "racecheck", "synccheck", "initcheck"])
@pytest.mark.parametrize("mechanism", EXERCISES)
def test_compute_sanitizer_finds_nothing(mechanism: str, check: str) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("needs compute-sanitizer")
    command = [sanitizer, "--tool", check, "--error-exitcode", "9"]
    for prefix in {name.partition("_")[0] for name in KERNELS[mechanism].names}:
        command += ["--kernel-name", f"kernel_substring={prefix}_"]
    result = subprocess.run(
        [*command, sys.executable, "-m", "tests.cuda.exercise", mechanism, "cuda"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
