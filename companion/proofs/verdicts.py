"""A kernel proves itself on a GPU before it computes for anybody there.

No machine on which this project is tested has a GPU. So the first time that an operator is to run by its kernels on a
GPU, a child process launches every one of them, forward and backward, in each dtype and at odd sizes, and compares
with plain torch in float64. It is a process of its own because an illegal address spoils a process for good and a
kernel that hangs never returns; so nothing of the caller's is touched or inherited either. The verdict is kept in
:func:`~companion.files.cache_directory`, one for each cubin, what launches it, GPU, driver, CuPy and torch. None is
kept of a proof that found no room on the GPU or another GPU, was not done in time or did not end by itself: the next
process proves again.

A room says what is to be proved (an :class:`Operator`, beside its kernels) and how (its module ``proof``). What runs in
the child process is in :mod:`companion.proofs.trial`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch

from companion.cuda import build, launch
from companion.files import cache_directory, check_owner, write_privately
from companion.operators import Operator, choice, operators

#: Seconds that a proof may take, compilation included.
LIMIT = 300.0

SIMULATOR = "simulator"

_SUFFIXES = (".py", ".cu", ".cuh", ".h", ".cpp")

_known: dict[tuple[str, str], Verdict] = {}
_one_at_a_time = threading.Lock()


def _after_fork() -> None:
    """Another thread may have held the lock: it is not there in the child, which would wait for it for ever."""
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Verdict(NamedTuple):
    """Whether an operator may be computed by its kernels; if not, why, and whether that is worth keeping."""

    holds: bool
    said: str
    seconds: float = 0.0
    lasting: bool = True


TOO_OLD = Verdict(False, "no kernel is made for a GPU as old as this.")


# --- asked by operators ------------------------------------------------------------------------------------------


def holds(operator: Operator, device: torch.device) -> bool:
    """Whether the kernels of an operator may compute on this device; found out at the first call.

    Raises
    ------
    RuntimeError
        During the capture of a CUDA graph, if it is not known yet.
    """
    return known(operator, place_of(device), warn=True).holds


def known(operator: Operator, place: str, warn: bool = False) -> Verdict:
    """The verdict on an operator: from this process, from the disk, or from a child process that finds it out."""
    found = _known.get((operator.name, place))
    if found is not None:
        return found
    if place != SIMULATOR and not torch.cuda.is_available():
        return Verdict(False, "there is no GPU.")  # a tensor of which only the device is pretended
    if _too_old(operator, place):
        return TOO_OLD
    if place != SIMULATOR and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"{operator.name}: its kernels are not proved on this GPU yet, and that is not possible while a CUDA graph "
            "is captured; call the operator once, or companion.warmup(), before the capture"
        )
    with _one_at_a_time:
        found = _known.get((operator.name, place))
        if found is None:
            found = _verdict(operator, place)
            _known[operator.name, place] = found
            if warn and not found.holds:
                warnings.warn(_warning(operator, place, found), RuntimeWarning, stacklevel=2)
    return found


def none_holds(device: torch.device) -> bool:
    """Whether it is known of every operator that its kernels do not compute on this device; nothing is proved."""
    return not any(_may_hold(operator, place_of(device)) for operator in operators())


def _may_hold(operator: Operator, place: str) -> bool:
    found = _known.get((operator.name, place))
    try:
        found = found or kept(operator, place)
    except (build.CompileError, OSError):
        return False
    return found is None or found.holds


def _too_old(operator: Operator, place: str) -> bool:
    return place != SIMULATOR and not operator.names(capability(place))


def capability(place: str) -> int:
    """The compute capability of a GPU, times ten."""
    major, minor = torch.cuda.get_device_capability(torch.device(place))
    return 10 * major + minor


def place_of(device: torch.device) -> str:
    """A device by the name under which a child process finds it."""
    return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"


def _warning(operator: Operator, place: str, verdict: Verdict) -> str:
    return (
        f"companion: plain torch computes {operator.name} on {gpu_name(place)}, because the kernels did not prove "
        f"themselves there: {verdict.said} Results are right, but slower. Please report this with what "
        f"`python -m companion.doctor` prints{_where_to_report()}."
    )


def _where_to_report() -> str:
    try:
        addresses = importlib.metadata.metadata("rethinking-the-neuron").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    found = dict(entry.split(", ", 1) for entry in addresses).get("Issues")
    return f" at {found}" if found else ""


def warmup(device: torch.device | str = "cuda") -> None:
    """Compile the kernels of all operators for a GPU, let them prove themselves, and load them, now.

    After it no first call is slow, and a CUDA graph may be captured: neither proving nor loading is possible during a
    capture. Where kernels do not prove themselves, or none is made for the GPU, a warning says so, and plain torch
    computes.

    Parameters
    ----------
    device : torch.device or str
        A CUDA device; without an index, the current one.

    Raises
    ------
    RuntimeError
        If there is no such GPU, or CuPy is missing.

    Examples
    --------
    >>> import torch, companion
    >>> if torch.cuda.is_available():
    ...     companion.warmup()
    """
    if not torch.cuda.is_available():
        raise RuntimeError("warmup: there is no GPU here that torch can use")
    launch.cupy()
    place = place_of(torch.device(device))
    if old := [operator.name for operator in operators() if _too_old(operator, place)]:
        message = f"warmup: plain torch computes {', '.join(old)} on {gpu_name(place)}: {TOO_OLD.said}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    for operator in operators():
        if known(operator, place, warn=True).holds:
            for kernels in operator.kernels:
                if kernels.lowest <= capability(place):
                    kernels.load(torch.device(place).index)


# --- the verdict -------------------------------------------------------------------------------------------------


def identity(operator: Operator, place: str) -> dict[str, Any]:
    """All that a verdict depends on.

    Raises
    ------
    CompileError
        If there is no compiler whose cubins could be proved.
    """
    if place == SIMULATOR:
        return {"operator": operator.name, "sources": _sources(operator, "simulator", "simulator/runtime")}
    return {
        "operator": operator.name,
        "sources": _sources(operator),
        "cubins": [build.cubin_key(kernels.source, capability(place)) for kernels in operator.kernels],
        "gpu": gpu_name(place),
        "driver": driver(),
        "cupy": _version("cupy"),
        "torch": torch.__version__,
    }


@functools.cache
def _sources(operator: Operator, *more: str) -> str:
    """The SHA-256 of what makes launches of kernels, and proofs of them: the folders of the operator and of what it is
    made of."""
    package = Path(__file__).parents[1]
    folders = {
        *(kernels.source.parent for kernels in operator.kernels),
        *(package / name for name in ("cuda", "operators", "proofs", *more)),
    }
    files = [path for folder in sorted(folders) for path in sorted(folder.iterdir()) if path.suffix in _SUFFIXES]
    files.append(package / "arguments.py")
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def gpu_name(place: str) -> str:
    """The model of the GPU."""
    return SIMULATOR if place == SIMULATOR else torch.cuda.get_device_name(torch.device(place))


@functools.cache
def driver() -> str:
    """The version of the GPU's driver, and of CUDA that it knows."""
    module = Path("/proc/driver/nvidia/version")
    text = module.read_text().split("\n")[0] if module.is_file() else ""
    return f"{getattr(torch._C, '_cuda_getDriverVersion', int)()} {text}".strip()


@functools.cache
def _version(module: str) -> str | None:
    for distribution in importlib.metadata.packages_distributions().get(module, ()):
        return f"{distribution} {importlib.metadata.version(distribution)}"
    return None


def verdict_path(operator: Operator, place: str) -> Path:
    """Where the verdict of this operator here is or will be kept.

    Raises
    ------
    CompileError
        If there is no compiler whose cubins could be proved.
    PermissionError
        If somebody else can change what lies in the cache.
    """
    digest = hashlib.sha256(json.dumps(identity(operator, place), sort_keys=True).encode()).hexdigest()
    return cache_directory("proof") / f"{operator.name}-{digest[:20]}.json"


def kept(operator: Operator, place: str) -> Verdict | None:
    """The verdict of an earlier proof, or that no kernel is made for this GPU; None if there is neither.

    Raises
    ------
    CompileError
        If there is no compiler whose cubins could have been proved.
    PermissionError
        If somebody else can change what lies in the cache.
    """
    return TOO_OLD if _too_old(operator, place) else _read(verdict_path(operator, place))


def _verdict(operator: Operator, place: str) -> Verdict:
    from filelock import FileLock, Timeout

    try:
        path = verdict_path(operator, place)
        # Eight processes that begin together prove once.
        with FileLock(path.with_suffix(".lock"), timeout=2 * LIMIT, mode=0o600):
            if (found := _read(path)) is None:
                found = prove(operator, place)
                if found.lasting:
                    write_privately(path, json.dumps(found._asdict() | identity(operator, place)).encode())
    except (build.CompileError, PermissionError) as error:
        return Verdict(False, f"{error}.")
    except (OSError, Timeout) as error:
        return Verdict(False, f"the proof could not be made or kept ({one_line(str(error))}).")
    return found


def _read(path: Path) -> Verdict | None:
    """A verdict that was kept; None if there is none, or something else."""
    try:
        check_owner(path)
        stored = json.loads(path.read_text(encoding="utf-8"))
        verdict = Verdict(stored["holds"], str(stored["said"]), float(stored["seconds"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return verdict if isinstance(verdict.holds, bool) else None


def prove(operator: Operator, place: str) -> Verdict:
    """Let a child process run the exercise of an operator; nothing is read or kept.

    Parameters
    ----------
    operator : Operator
        What is to be proved.
    place : str
        "cuda:0" or another GPU, or "simulator".
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        code = (
            f"import sys; sys.path[:] = {sys.path!r}\n"
            "from companion.proofs.trial import main\n"
            f"main({operator.exercise!r}, {operator.name!r}, {place!r}, {gpu_name(place)!r}, {str(report)!r})"
        )
        # Not a pipe: whoever waits for its end would wait for a hanging child as well.
        with (Path(folder) / "said").open("w+") as said:
            child = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=os.environ | {"COMPANION_CACHE": str(cache_directory())},
            )
            try:
                status = child.wait(LIMIT)
            except subprocess.TimeoutExpired:
                fault = f"they did not end within {LIMIT:g} seconds; companion.backend('torch') does not try them."
                return Verdict(False, fault, time.monotonic() - start, lasting=False)
            finally:  # also after an interrupt
                if child.poll() is None:
                    child.kill()
                    with contextlib.suppress(subprocess.TimeoutExpired):  # one that waits for the GPU may not even die
                        child.wait(10)
            said.seek(0)
            last = one_line(said.read().strip().rpartition("\n")[2])
        seconds = round(time.monotonic() - start, 1)
        if not report.is_file():
            fault = f"the process that tried them ended with status {status}: {last or 'no word'}."
            return Verdict(False, fault, seconds, lasting=False)
        fault, lasting = json.loads(report.read_text(encoding="utf-8"))
        return Verdict(not fault, fault, seconds, lasting)


def one_line(text: str) -> str:
    """A message on one line, short, and without the folders of this machine: it ends up in reports."""
    return re.sub(r"(?:[A-Za-z]:)?[\\/](?:[^\s\\/:'\"]+[\\/])+", "", " ".join(text.split()))[:500]


choice.trusts, choice.trusts_none = holds, none_holds
