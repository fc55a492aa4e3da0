"""The examples are whole programs that a reader takes with them: short, and they learn."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))
LONGEST = 60


def test_each_fits_on_a_page_and_says_how_it_is_called() -> None:
    assert len(EXAMPLES) == 3
    for path in EXAMPLES:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= LONGEST, path.name
        assert f"python examples/{path.name} --smoke" in text


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_on_the_digits_it_learns(path: Path) -> None:
    result = subprocess.run([sys.executable, path, "--smoke"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    *_, last = re.findall(r"accuracy .*?([\d.]+)$", result.stdout, re.MULTILINE)
    assert float(last) > 0.4  # of ten digits
