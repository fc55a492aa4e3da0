"""compute-sanitizer watches what every kernel does when it proves itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from companion.operators import operators
from companion.proofs.verdicts import Operator


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("check", ["memcheck", "racecheck", "synccheck"])
@pytest.mark.parametrize("operator", operators(), ids=lambda operator: operator.name)
def test_compute_sanitizer_finds_nothing(operator: Operator, check: str, tmp_path: Path) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("needs compute-sanitizer")
    command = [sanitizer, "--tool", check, "--error-exitcode", "9"]
    if check == "memcheck":  # of kernels; what torch and CuPy ask of a driver may be answered with no
        command += ["--report-api-errors", "no"]
    for prefix in {name.partition("_")[0] for name in operator.names(90)}:
        command += ["--kernel-name", f"kernel_substring={prefix}_"]
    report = tmp_path / "report"
    child = "import sys; from companion.proofs.trial import main; main(*sys.argv[1:])"
    result = subprocess.run(
        [*command, sys.executable, "-c", child, operator.exercise, operator.name, "cuda:0", str(report)],
        cwd=Path(__file__).parents[2],
        # each tensor an allocation: what is written beyond one would otherwise lie in torch's own memory
        env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(report.read_text()) == ["", True]
