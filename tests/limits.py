"""How a test ends that is not over in time, in a process of xdist: ``-p tests.limits``, which tests/lanes.py gives.

pytest-timeout alone raises an exception where the test waits. A kernel in the simulator does not notice it, and what
the test has started runs on: a child for ever, and one that was forked holds the pipe by which xdist would learn that
the process is gone. So here all that the process has started is killed, and then the process itself; xdist starts
another for the tests that are left. Where the test hung is said in its report.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

import psutil
import pytest

#: Where a process leaves what the one that collects the reports is to say of it.
NOTES = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[NOTES] = tempfile.TemporaryDirectory()


def pytest_unconfigure(config: pytest.Config) -> None:
    if NOTES in config.stash:
        config.stash[NOTES].cleanup()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["note"] = str(Path(node.config.stash[NOTES].name) / node.gateway.id)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Instead of pytest-timeout's own, where there is somebody to go on."""
    given = getattr(item.config, "workerinput", None)
    if given is None:
        return None
    timer = threading.Timer(settings.timeout, _end, (Path(given["note"]), settings.timeout))
    timer.daemon = True
    item.cancel_timeout = timer.cancel
    timer.start()
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """Of a process that has ended in the middle of a test: what it left."""
    note = Path(report.node.workerinput["note"])
    if note.exists():
        report.longrepr = note.read_text(encoding="utf-8")


def _end(note: Path, limit: float) -> None:
    started = {process.pid: _name(process) for process in psutil.Process().children(recursive=True)}
    with_it = f", and with it {', '.join(sorted(set(started.values())))}" if started else ""
    note.write_text(f"{_stacks()}The test was not over after {limit:g} s and was ended{with_it}.\n", encoding="utf-8")
    sys.setswitchinterval(60)  # the test must not see its child die, fail, and let the next test begin
    for pid in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(1)


def _stacks() -> str:
    """What all threads do, the main one last; behind it what waits in a greenlet, as a test of a page does."""
    here, main = threading.get_ident(), threading.main_thread().ident
    frames = sys._current_frames()
    places = [frames[each] for each in sorted(frames, key=lambda each: each == main) if each != here]
    if "greenlet" in sys.modules:
        kind = sys.modules["greenlet"].greenlet
        places += [each.gr_frame for each in gc.get_objects() if isinstance(each, kind) and each.gr_frame]
    return "".join("---\n" + "".join(traceback.format_stack(frame)) for frame in places)


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return "one that had ended"
