"""What is left of a finished job: one file in the folder of a run, which exists whole or not at all.

A part holds the job, its outcome, the seconds that it took, and the machine that computed it. Its name is a hash of all
that the outcome depends on, the machine left out: parts may come from several.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from companion.files import write_atomically
from companion.study import results
from companion.study.experiments.executors import THREADS
from companion.study.experiments.registry import Job

__all__ = ["Part", "canonical", "check", "key", "layout", "read", "runs_path", "write", "write_json"]

Part = dict[str, Any]


def runs_path() -> Path:
    """Return the folder that runs go to: ``$COMPANION_RUNS``, or ``runs`` in the working directory."""
    return Path(os.environ.get("COMPANION_RUNS") or "runs")


def key(job: Job, code: str, machine: Mapping[str, Any] | None = None) -> str:
    """Return the name of a job's part.

    Parameters
    ----------
    job : Job
        What is computed.
    code : str
        By which code, as `companion.study.experiments.provenance.code` gives it.
    machine : mapping, optional
        On which machine, where this matters: where something is timed.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    what = [job.as_dict(), code, THREADS] + ([] if machine is None else [machine])
    return hashlib.sha256(canonical(what)).hexdigest()[:32]


def write(path: Path, job: Job, outcome: Any, seconds: float, machine: Mapping[str, Any]) -> Part:
    """Write a part, and return it as a resumed run reads it: both see exactly the same numbers."""
    part = {"job": job.as_dict(), "outcome": _without_infinities(outcome), "seconds": seconds, "machine": machine}
    write_json(path, part)
    return read(path, job)


def read(path: Path, job: Job) -> Part:
    """Return the part of a job.

    Raises
    ------
    ValueError
        If the file holds something else. The message names it and says what to do.
    """
    try:
        return check(results.parse(path), job, str(path))
    except ValueError as error:
        raise ValueError(f"{error}; remove that file, and its job is computed again") from error


def check(part: Any, job: Job | None, label: str) -> Part:
    """Return a part if it is one, and of this job if one is named; else raise ValueError, which begins with `label`."""
    if not isinstance(part, dict) or part.keys() != {"job", "outcome", "seconds", "machine"}:
        raise ValueError(f"{label} is damaged: it is no part of a run")
    held = part["job"]
    if job is not None and held != json.loads(canonical(job.as_dict())):
        raise ValueError(f"{label} holds another job than its name says: {json.dumps(held)[:300]}")
    if not isinstance(held, dict) or held.keys() != {field.name for field in fields(Job)}:
        raise ValueError(f"{label} is damaged: it holds no job")
    if not _is_number(part["seconds"]) or not _is_outcome(part["outcome"], held["stage"]):
        raise ValueError(f"{label} is damaged: its outcome or its seconds have a wrong type")
    if not isinstance(part["machine"], dict) or part["machine"].keys() != {"versions", "hardware", "precision"}:
        raise ValueError(f"{label} is damaged: it does not say what computed it")
    return part


def _is_outcome(value: Any, stage: str) -> bool:
    if stage == "tuning":
        return value is None or _is_number(value)
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def canonical(value: Any) -> bytes:
    """Return the one JSON of a value."""
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()


def _without_infinities(value: Any) -> Any:
    """Replace what JSON cannot hold: a loss that diverged becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_infinities(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinities(item) for item in value]
    return value


def write_json(path: Path, value: Any) -> None:
    """Write a file that exists whole or not at all."""
    write_atomically(path, layout(value).encode())


def layout(value: Any) -> str:
    """Return JSON with one line per row, so that a diff of two results can be read."""
    if not isinstance(value, dict):
        return json.dumps(value, allow_nan=False)
    entries = []
    for key, item in value.items():
        if isinstance(item, list) and item and isinstance(item[0], dict):
            lines = ",\n".join(f"    {json.dumps(row, allow_nan=False)}" for row in item)
            entries.append(f"  {json.dumps(key)}: [\n{lines}\n  ]")
        else:
            entries.append(f"  {json.dumps(key)}: {json.dumps(item, allow_nan=False)}")
    return "{\n" + ",\n".join(entries) + "\n}\n"
