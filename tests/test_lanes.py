"""A lane that fails says why at its end, where continuous integration shows it."""

import re
import sys

import pytest

from tests import lanes

TESTS = """
import os, pytest

def test_right(): pass

def test_wrong():
    assert 1 + 1 == 3, os.environ["TORCHINDUCTOR_CACHE_DIR"]

def test_of_many_cases(): pytest.fail("2 of 3 cases fail\\n--- a\\n--- b", pytrace=False)

@pytest.fixture
def broken(): raise OSError("no disk")

def test_not_begun(broken): pass
"""


@pytest.fixture
def build(tmp_path, monkeypatch):
    monkeypatch.setattr(lanes, "BUILD", tmp_path)
    return tmp_path


def test_the_reasons_come_last(build, monkeypatch, capsys):
    (build / "test_planted.py").write_text(TESTS)
    pytest_alone = lanes.module("pytest", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={build}")
    steps = [
        lanes.Step("tests", (*pytest_alone, str(build / "test_planted.py")), {}),
        lanes.Step("program", (sys.executable, "-c", "print('said'); raise SystemExit('broke')"), {}),
        lanes.Step("none", ("./no-such-program",), {}),
        lanes.Step("fine", (sys.executable, "-c", "print('all is well')"), {}),
    ]
    monkeypatch.setattr(lanes, "lanes", lambda name: steps)
    assert lanes.main(["planted"]) == 1
    log, summary = capsys.readouterr().out.split("=== summary ===")
    assert "all is well" in log
    assert "all is well" not in summary
    assert [line.split()[2] for line in summary.splitlines()[1:5]] == ["FAILED", "FAILED", "FAILED", "passed"]
    tests, program, none = summary.split("=== why ")[1:]
    wrong, many, broken = re.split(r"--- .*::", tests)[1:]
    assert f"{build}/inductor/planted" in wrong
    assert "assert (1 + 1) == 3" in wrong
    assert "--- a\n--- b" in many
    assert "OSError: no disk" in broken
    assert "said\nbroke" in program
    assert "no-such-program" in none
    assert "test_right" not in summary
