"""A kernel proves itself on a GPU before it computes for anybody there.

No machine on which this project is tested has a GPU. So the first time that an operator is to run by its kernels on a
GPU, a child process launches every one of them, forward and backward, in each dtype and at odd sizes, and compares
with plain torch in float64. It is a process of its own because an illegal address spoils a process for good and a
kernel that hangs never returns; so nothing of the caller's is touched or inherited either. The verdict is kept in
:func:`~companion.files.cache_directory`, one for each cubin, GPU, driver, CuPy and torch.

A room says what is to be proved (an :class:`Operator`, beside its kernels) and how (its module ``proof``).
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from companion.cuda import build, launch
from companion.cuda.launch import Kernels
from companion.files import cache_directory, write_atomically

#: Seconds that a proof may take, compilation included.
LIMIT = 300.0

#: How many times further than the tests allow a result may lie from the exact one.
SLACK = 4.0

SIMULATOR = "simulator"

_operators: dict[str, Operator] = {}
_known: dict[tuple[str, str], Verdict] = {}
_one_at_a_time = threading.Lock()


class Operator:
    """What is trusted or not as a whole.

    Parameters
    ----------
    name : str
        Of the public function.
    kernels : sequence of Kernels
        All that it launches.
    exercise : str
        "module:function". The function takes a device and yields :class:`Comparison`; it launches every kernel.
    """

    def __init__(self, name: str, kernels: Sequence[Kernels], exercise: str) -> None:
        self.name = name
        self.kernels = tuple(kernels)
        self.exercise = exercise
        _operators[name] = self

    def names(self, arch: int) -> set[str]:
        """The kernels that are launched on a compute capability."""
        return {name for kernels in self.kernels if kernels.lowest <= arch for name in kernels.names}


class Comparison(NamedTuple):
    """A result of the kernels, what it should be, and how far it may lie from that."""

    what: str
    found: Tensor
    exact: Tensor
    bound: Tensor


class Verdict(NamedTuple):
    """Whether an operator may be computed by its kernels; if not, why, and whether that is worth keeping."""

    holds: bool
    said: str
    seconds: float = 0.0
    lasting: bool = True


def operators() -> list[Operator]:
    """All that prove themselves, by name."""
    return [_operators[name] for name in sorted(_operators)]


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
    """Compile every kernel for a GPU, let it prove itself, and load it, now.

    After it no first call is slow, and a CUDA graph may be captured: neither proving nor loading is possible during a
    capture. Where kernels do not prove themselves, a warning says so, and plain torch computes.

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
    major, minor = torch.cuda.get_device_capability(torch.device(place))
    refused = {
        kernels
        for operator in operators()
        if not known(operator, place, warn=True).holds
        for kernels in operator.kernels
    }
    for kernels in launch.all_kernels():
        if kernels not in refused and kernels.lowest <= 10 * major + minor:
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
        texts = [kernels.source.read_text() for kernels in operator.kernels]
        return {"operator": operator.name, "sources": hashlib.sha256("\0".join(texts).encode()).hexdigest()}
    device = torch.device(place)
    major, minor = torch.cuda.get_device_capability(device)
    return {
        "operator": operator.name,
        "cubins": [build.cubin_path(kernels.source, 10 * major + minor).stem for kernels in operator.kernels],
        "gpu": gpu_name(place),
        "driver": driver(),
        "cupy": _version("cupy"),
        "torch": torch.__version__,
    }


def gpu_name(place: str) -> str:
    """The model of the GPU."""
    return SIMULATOR if place == SIMULATOR else torch.cuda.get_device_name(torch.device(place))


@functools.cache
def driver() -> str:
    """The version of the GPU's driver, and of CUDA that it knows."""
    module = Path("/proc/driver/nvidia/version")
    text = module.read_text().split("\n")[0] if module.is_file() else ""
    return f"{getattr(torch._C, '_cuda_getDriverVersion', int)()} {text}".strip()


def _version(module: str) -> str | None:
    for distribution in importlib.metadata.packages_distributions().get(module, ()):
        return f"{distribution} {importlib.metadata.version(distribution)}"
    return None


def verdict_path(operator: Operator, place: str) -> Path:
    """Where the verdict of this operator here is or will be kept."""
    digest = hashlib.sha256(json.dumps(identity(operator, place), sort_keys=True).encode()).hexdigest()
    return cache_directory() / "proof" / f"{operator.name}-{digest[:20]}.json"


def kept(operator: Operator, place: str) -> Verdict | None:
    """The verdict of an earlier proof, None if there was none.

    Raises
    ------
    CompileError
        If there is no compiler whose cubins could have been proved.
    """
    return _read(verdict_path(operator, place))


def _verdict(operator: Operator, place: str) -> Verdict:
    from filelock import FileLock, Timeout

    try:
        path = verdict_path(operator, place)
    except build.CompileError as error:
        return Verdict(False, f"{error}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Eight processes that begin together prove once.
        with FileLock(path.with_suffix(".lock"), timeout=2 * LIMIT):
            if (found := _read(path)) is None:
                found = prove(operator, place)
                if found.lasting:
                    write_atomically(path, json.dumps(found._asdict() | identity(operator, place)).encode())
    except (OSError, Timeout) as error:
        return Verdict(False, f"the proof could not be made or kept ({_line(str(error))}).")
    return found


def _read(path: Path) -> Verdict | None:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return Verdict(bool(stored["holds"]), str(stored["said"]), float(stored["seconds"]))
    except (OSError, ValueError, KeyError):
        return None


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
            "from companion.cuda.proof import main\n"
            f"main({operator.exercise!r}, {operator.name!r}, {place!r}, {str(report)!r})"
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
                child.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):  # one that waits for the GPU may not even die
                    child.wait(10)
                return Verdict(False, f"they did not end within {LIMIT:g} seconds.", time.monotonic() - start)
            said.seek(0)
            last = _line(said.read().strip().rpartition("\n")[2])
        seconds = round(time.monotonic() - start, 1)
        if not report.is_file():
            return Verdict(
                False, f"the process that tried them ended with status {status}: {last or 'no word'}.", seconds
            )
        fault, lasting = json.loads(report.read_text(encoding="utf-8"))
        return Verdict(not fault, fault, seconds, lasting)


# --- in the child process ----------------------------------------------------------------------------------------


def main(exercise: str, name: str, place: str, report: str) -> None:
    """Run an exercise and write what is wrong, and whether that is the kernels' fault, to the file ``report``."""
    of_exercise = exercise_of(exercise)
    lasting = False  # a GPU that is full or somebody else's now says nothing about the kernels
    try:
        torch.empty(2**26, dtype=torch.uint8, device="cpu" if place == SIMULATOR else place)
        lasting = True
        fault = first_fault(_operators[name], of_exercise, place)
        if place != SIMULATOR:
            torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError as error:
        fault, lasting = f"the GPU has no room for the proof now ({_line(str(error))}).", False
    except RuntimeError as error:
        fault = f"{type(error).__name__}: {_line(str(error))}."
    write_atomically(Path(report), json.dumps([fault, lasting]).encode())


def exercise_of(exercise: str) -> Callable[[str], Iterator[Comparison]]:
    """The function that "module:function" names."""
    module, _, function = exercise.partition(":")
    found: Callable[[str], Iterator[Comparison]] = getattr(importlib.import_module(module), function)
    return found


def first_fault(operator: Operator, exercise: Callable[[str], Iterator[Comparison]], place: str) -> str:
    """What is wrong with the kernels of an operator: one sentence, empty if nothing is."""
    from companion.operator import backend

    simulated = place == SIMULATOR
    if simulated:
        device, arch = "cpu", 90
    else:
        torch.cuda.set_device(place)
        device, (major, minor) = place, torch.cuda.get_device_capability()
        arch = 10 * major + minor
    launched: set[str] = set()
    original = Kernels.launch

    def recorded(self: Kernels, name: str, *arguments: Any, **options: Any) -> None:
        launched.add(name)
        original(self, name, *arguments, **options)

    Kernels.launch = recorded  # type: ignore[method-assign]
    try:
        choice: Any = backend(SIMULATOR if simulated else "kernel")
        with choice:
            for comparison in exercise(device):
                if fault := _fault(comparison):
                    return fault
    finally:
        Kernels.launch = original  # type: ignore[method-assign]
    if missed := operator.names(arch) - launched:
        return f"the exercise did not launch {', '.join(sorted(missed))}."
    return ""


def _line(text: str) -> str:
    """A message on one line, short, and without the folders of this machine: it ends up in reports."""
    return re.sub(r"(?:[A-Za-z]:)?[\\/](?:[^\s\\/:'\"]+[\\/])+", "", " ".join(text.split()))[:500]


def _fault(comparison: Comparison) -> str:
    what, found, exact, bound = comparison
    if found.shape != exact.shape:
        return f"{what} has the shape {tuple(found.shape)} instead of {tuple(exact.shape)}."
    error = (found.detach().cpu().double() - exact).abs()
    wrong = ~(error <= bound)  # NaN is wrong
    if not wrong.any():
        return ""
    place = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{what} is wrong in {int(wrong.sum())} of {wrong.numel()} places, first at {place}: "
        f"{found[place].item():.6g} instead of {exact[place].item():.6g}."
    )


# --- for exercises -----------------------------------------------------------------------------------------------

# Odd eighths, and quarters for what is added to them: nothing meets the kink of ReLU. All are exact in 16 bits.
_EIGHTHS = (
    5,
    -11,
    17,
    -3,
    9,
    -21,
    1,
    13,
    -7,
    27,
    -15,
    3,
    -29,
    19,
    -1,
    7,
    23,
    -9,
    11,
    -13,
    31,
    -5,
    15,
    -17,
    21,
    -25,
    25,
)
_QUARTERS = (-2, 5, 1, -7, 3, 0, 6, -4, 2, -1, 7, -5, 4, -3, 8, -6, -8, 9, -9)
_SIGNALS = (4, -6, 10, 3, -8, 5, 12, -2, 7, -9, 1, 14, -5, 8, -11, 6, -13, 2, 9, -3, 11, -7, 13)


def inputs(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers between −4 and 4, the same every time: odd multiples of 1/8."""
    return _filled(_EIGHTHS, 8, shape).to(dtype)


def offsets(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers between −2.25 and 2.25: multiples of 1/4."""
    return _filled(_QUARTERS, 4, shape).to(dtype)


def signals(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers between −1 and 1, none of them 0: weights, and gradients of outputs."""
    return _filled(_SIGNALS, 16, shape).to(dtype)


def _filled(numbers: tuple[int, ...], unit: int, shape: tuple[int, ...]) -> Tensor:
    size = torch.Size(shape).numel()
    return (torch.tensor(numbers, dtype=torch.float64) / unit).repeat(size // len(numbers) + 1)[:size].view(shape)


def begins_within_a_pack(x: Tensor, device: str) -> Tensor:
    """The same numbers on a device, from one element after a multiple of 16 bytes on."""
    room = torch.empty(x.numel() + 1, dtype=x.dtype, device=device)
    room[1:] = x.reshape(-1).to(device)
    return room[1:].view(x.shape)


def differentiated(function: Callable[..., Tensor], operands: Sequence[Tensor], signal: Tensor) -> list[Tensor]:
    """f and its gradients."""
    leaves = [x.detach().requires_grad_() for x in operands]
    f = function(*leaves)
    return [f.detach(), *torch.autograd.grad(f, leaves, signal)]


def compared(
    what: str,
    function: Callable[..., Tensor],
    operands: Sequence[Tensor],
    device: str,
    relative: float,
    of_terms: float,
    magnitudes: Callable[..., Tensor] | None = None,
) -> Iterator[Comparison]:
    """f and its gradients by the kernels, beside those by plain torch in float64.

    Parameters
    ----------
    what : str
        How a fault calls it.
    function : callable
        Takes the operands.
    operands : sequence of Tensor
        On the CPU; the first decides the dtype of the result.
    device : str
        Where the kernels compute.
    relative, of_terms : float
        What the tests allow: a share of the exact result, and a share of the terms that it is summed from.
    magnitudes : callable, optional
        f for operands without signs, whose value and gradients are the sums of the terms' magnitudes. Without it the
        largest number of a result stands for them.
    """
    exactly = [x.double() for x in operands]
    with torch.no_grad():
        shape = function(*exactly).shape
    signal = signals(*shape, dtype=operands[0].dtype)
    there = [begins_within_a_pack(x, device) for x in (*operands, signal)]
    found = differentiated(function, there[:-1], there[-1])
    exact = differentiated(function, exactly, signal.double())
    if magnitudes is None:
        terms = [x.abs().max() for x in exact]
    else:
        terms = differentiated(magnitudes, [x.abs() for x in exactly], signal.double().abs())
    named = ("the result", *(f"the gradient of operand {k}" for k in range(1, len(exact))))
    for name, one, other, sums in zip(named, found, exact, terms, strict=True):
        smallest = 2.0**-24 if one.dtype == torch.float16 else 0.0
        bound = SLACK * (relative * other.abs() + of_terms * sums + smallest)
        yield Comparison(f"{what}, {str(one.dtype)[6:]}, {tuple(operands[0].shape)}: {name}", one, other, bound)
