"""A process that is forked while another thread is in the simulator can use it, and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import companion

ROOT = Path(companion.__file__).parents[1]
LIMIT = 60

#: Another thread is in a launch that takes longer than the test; then the process forks, and the child does WORK.
PROGRAM = """
import os, sys, threading, time
import numpy as np, torch
from companion import simulator
from companion.simulator import engines

module = simulator.load(sys.argv[1], ["spin", "one"])
long = threading.Thread(
    target=module.launch, args=("spin", (1,), (1,), [torch.zeros(1), np.int64(10**15)]), daemon=True
)
long.start()
while not engines._one_launch.locked():
    time.sleep(0.01)
time.sleep(0.5)
child = os.fork()
if child == 0:
    x = torch.zeros(1)
    WORK
    os._exit(int(x.item()))
status = os.waitpid(child, 0)[1]
print(os.waitstatus_to_exitcode(status), flush=True)
os._exit(0)
"""

SOURCE = """
extern "C" __global__ void spin(float* x, long long n) {
    for (volatile long long i = 0; i < n; ++i) {}
    x[0] = 1;
}
extern "C" __global__ void one(float* x) { x[0] = 7; }
"""

LAUNCH = 'module.launch("one", (1,), (1,), [x])'
FAULT = 'try: module.launch("one", (1,), (1,), [None])\n    except simulator.SimulatorError: x[0] = 9'
CRASH = f"{LAUNCH}\n    import ctypes; ctypes.string_at(0)"


@pytest.mark.parametrize(
    ("work", "status"),
    [(LAUNCH, 7), (FAULT, 9), (CRASH, -signal.SIGSEGV)],
    ids=["a launch", "a fault in a kernel", "a fault elsewhere"],
)
def test_a_child_of_a_process_whose_other_thread_launches(work: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "spin.cu").write_text(SOURCE)
    command = [sys.executable, "-c", PROGRAM.replace("WORK", work), str(tmp_path / "spin.cu")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        said, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the child as well
        process.communicate()
        pytest.fail(f"the child did not end within {LIMIT} seconds")
    assert said == f"{status}\n"
