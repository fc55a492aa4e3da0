"""Everything runs on a second device without a GPU: see `tests/second_device/device.py`.

The device is there for a whole process, and before anything else: its tests have a process of their own. By themselves
they run as ``python -m pytest tests/second_device``, with ``--every-case`` to leave nothing out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "second_device"


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("test_*.py")))
def test_on_a_second_device(file: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(FOLDER / file)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER.parents[1], check=False)
    if run.returncode != 0:
        pytest.fail(f"{run.stdout}\n{run.stderr}", pytrace=False)
