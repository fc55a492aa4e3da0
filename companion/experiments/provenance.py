"""What a result was computed with: versions, hardware, code. Never a host, a user or a path.

Of the code, a result remembers what it gave: the rows of the experiment's smoke preset. `differences` compares them
with what today's code gives.
"""

import hashlib
import math
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from companion.experiments.registry import Experiment, Row

__all__ = ["differences", "environment", "git_state", "sources"]

_PACKAGE = Path(__file__).resolve().parents[1]
# Relative. With and without vector extensions the first loss of a training differs by 3e-7 and the second by 2e-5; from
# the third on, rounding may have chosen another side of a kink.
_LOSSES = 1e-3


def differences(experiment: Experiment, stored: Sequence[Row], given: Sequence[Row]) -> list[str]:
    """Say where the rows of a smoke preset differ by more than processors differ.

    Words, counts, keys and learning rates must be equal, losses to a thousandth, measures to the experiment's
    ``tolerance``.

    Parameters
    ----------
    experiment : Experiment
        Whose rows they are.
    stored : sequence of dict
        What the code of a result gave.
    given : sequence of dict
        What the code of today gives.

    Returns
    -------
    list of str
        A phrase for each value that differs; none, if the result is not outdated.

    Examples
    --------
    >>> from companion.experiments import get
    >>> stored = [{"activation": "relu", "seed": 0, "first_losses": [2.31, 2.2], "accuracy": 0.5}]
    >>> differences(get("apa-digits"), stored, [{**stored[0], "first_losses": [2.31, 2.1]}])
    ['first_losses of row 0 was [2.31, 2.2] and is [2.31, 2.1]']
    """
    if len(stored) != len(given):
        return [f"there were {len(stored)} rows and are {len(given)}"]
    return [
        f"{key} of row {number} was {before.get(key)} and is {now.get(key)}"
        for number, (before, now) in enumerate(zip(stored, given, strict=True))
        for key in before | now
        if not _alike(key, before.get(key, ...), now.get(key, ...), experiment.tolerance)
    ]


def _alike(key: str, before: Any, now: Any, tolerance: float) -> bool:
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(_alike(key, a, b, tolerance) for a, b in zip(before, now, strict=True))
    if isinstance(before, float) and isinstance(now, float) and key != "learning_rate":
        if key == "first_losses":
            return math.isclose(before, now, rel_tol=_LOSSES)
        return abs(before - now) <= tolerance * max(1, abs(before))
    return bool(before == now)


def sources() -> str:
    """Return a hash of the package's source files as they lie on the disk now.

    Any change gives another one: it tells one run from the next, not one result from another.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*")):
        if file.suffix in (".py", ".cu", ".cuh"):
            digest.update(file.relative_to(_PACKAGE).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def environment(device: str) -> dict[str, Any]:
    """Return versions and hardware, as far as they can change a number.

    Parameters
    ----------
    device : str
        "cpu" or "cuda": whether the GPU's name belongs to it.

    Returns
    -------
    dict
        Keys "versions" and "hardware".
    """
    return {
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": _version("numpy"),
            "scipy": _version("scipy"),
            "scikit-learn": _version("scikit-learn"),
            "companion": _version("rethinking-the-neuron"),
        },
        "hardware": {
            "cpu": _cpu(),
            "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        },
    }


def git_state() -> dict[str, Any] | None:
    """Return the commit and whether the package differs from it; None outside a git checkout."""
    if not (_PACKAGE.parent / ".git").exists():
        return None
    try:
        status = _git("status", "--porcelain", "--", "companion")
    except (OSError, subprocess.CalledProcessError):
        return None
    try:
        commit = _git("rev-parse", "--verify", "HEAD").strip()
    except subprocess.CalledProcessError:
        # A repository before its first commit.
        return {"commit": None, "dirty": True}
    return {"commit": commit, "dirty": bool(status.strip())}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=_PACKAGE.parent, capture_output=True, text=True, check=True).stdout


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
