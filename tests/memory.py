"""What a function holds: counted where PyTorch's allocator hands it out, so the same on every machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity, profile


def peak(function: Callable[[], object]) -> float:
    """MiB of tensors that ``function`` holds at most at once, beyond what was there before.

    A process's resident memory would say less: what is swapped out or not yet touched is missing there, and what other
    libraries keep is in it.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        function()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        found.export_chrome_trace(str(file))
        events = [x for x in json.loads(file.read_text())["traceEvents"] if x["name"] == "[memory]"]
    events.sort(key=lambda x: x["ts"])
    held = highest = 0
    for event in events:
        held += event["args"]["Bytes"]
        highest = max(highest, held)
    return highest / 2**20
