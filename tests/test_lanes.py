"""A lane that fails says why at its end, where continuous integration shows it."""

import contextlib
import re
import shutil
import sys

import psutil
import pytest

from companion import simulator
from tests import lanes
from tests.conftest import ARGUMENTS, CHROMIUMS

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

#: Pages, children and kernels that never end, and what comes after them.
ENDLESS = """
import ctypes, os, subprocess, sys, time

def test_page():
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path={chromium!r}, args={arguments}).new_page()
        page.evaluate("() => {{ while (true) {{}} }}")

def test_child(): subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])

def test_fork():
    child = os.fork()
    if child == 0: time.sleep(600)
    os.waitpid(child, 0)

def test_kernel():
    from companion import simulator
    simulator.load({kernel!r}, ["endless"]).launch("endless", (1,), (1,), [])

def test_what_lets_no_thread_work(): ctypes.PyDLL(None).sleep(600)

def test_before(): pass

def test_after(): pass
"""
KERNEL = 'extern "C" __global__ void endless() { for (volatile int i = 0;; ++i) { } }'


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


#: A program that hangs, and what it has started in a session of its own, as a browser is.
PROGRAM = """
import subprocess
print("child", subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
subprocess.run(["sleep", "600"])
"""


def test_what_hangs_is_ended_and_named_and_the_rest_goes_on(build, monkeypatch, capsys):
    chromium = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if chromium is None or not simulator.available():
        pytest.skip("needs a Chromium and g++")
    (build / "endless.cu").write_text(KERNEL)
    simulator.load(build / "endless.cu", ["endless"])  # compiled here, outside the limit
    planted = build / "test_planted.py"
    planted.write_text(ENDLESS.format(chromium=chromium, arguments=ARGUMENTS, kernel=str(build / "endless.cu")))
    given = {"timeout": 5, "faulthandler_timeout": 8}
    options = [option for name, value in given.items() for option in ("-o", f"{name}={value}")]
    command = lanes.tests("-p", "no:cacheprovider", "-c", "pyproject.toml", *options, str(planted))
    steps = [lanes.Step("tests", command, {}), lanes.Step("program", (sys.executable, "-c", PROGRAM), {})]
    monkeypatch.setattr(lanes, "lanes", lambda name: steps)
    run = lanes.run
    monkeypatch.setattr(lanes, "run", lambda lane, step, limit: run(lane, step, 600 if step.name == "tests" else 10))
    assert lanes.main(["planted"]) == 1
    log, summary = capsys.readouterr().out.split("=== summary ===")
    named = re.findall(r"--- .*::(\w+)", summary)
    assert sorted(named) == ["test_child", "test_fork", "test_kernel", "test_page", "test_what_lets_no_thread_work"]
    assert "5 failed, 2 passed" in log
    reasons = dict(zip(named, re.split(r"--- .*::\w+", summary)[1:], strict=True))
    assert 'subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])' in reasons["test_child"]
    assert re.search(r"not over after 5 s and was ended, and with it \w*python", reasons["test_fork"])
    assert "Timeout (0:00:08)!" in log
    assert "in test_what_lets_no_thread_work" in log
    assert "not over after 10 s and was ended; above is where it hung. Before, it said:\nchild" in summary
    assert "in _try_wait" in log
    child = int(re.search(r"^child (\d+)", log, re.MULTILINE)[1])
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(child).wait(60)  # it was killed; somebody may have to take note first
