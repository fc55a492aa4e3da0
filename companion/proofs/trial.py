"""What runs in the child process in which a kernel proves itself, and what the exercises of rooms are made of.

:mod:`companion.proofs.verdicts` starts that process and keeps its verdict.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from companion.cuda.build import CompileError, ToolError
from companion.cuda.launch import Kernels
from companion.files import write_atomically
from companion.operators import Operator, backend, operators
from companion.proofs.verdicts import SIMULATOR, gpu_name, one_line
from companion.simulator.errors import SimulatorError

#: What the driver calls a fault of a kernel, in the first line of an error: torch adds advice. Anything else, such as a
#: CuPy that cannot be imported or a memory that is broken, may be mended, and says nothing about the kernels; nor does
#: a launch that timed out, because a screen waited for a busy GPU.
_FAULTS = re.compile(
    "illegal|misaligned|assert|launch|too many resources|invalid|symbol|no (binary|kernel image)", re.I
)

#: How many times further than the tests allow a result may lie from the exact one.
SLACK = 4.0


class Comparison(NamedTuple):
    """A result of the kernels, what it should be, and how far it may lie from that."""

    what: str
    found: Tensor
    exact: Tensor
    bound: Tensor


# --- in the child process ----------------------------------------------------------------------------------------


def main(exercise: str, name: str, place: str, gpu: str, report: str) -> None:
    """Run an exercise and write what is wrong, and whether that is the kernels' fault, to the file ``report``.

    ``gpu`` is the model that the caller's ``place`` is.
    """
    of_exercise = exercise_of(exercise)
    (operator,) = (operator for operator in operators() if operator.name == name)
    # memory that is not written is filled with NaN: zeros, which it often holds, would hide that
    torch.use_deterministic_algorithms(True, warn_only=True)
    lasting = False  # nor does a GPU that is full or somebody else's now
    try:
        torch.empty(2**26, dtype=torch.uint8, device="cpu" if place == SIMULATOR else place)
        if gpu_name(place) == gpu:
            lasting = True
            fault = first_fault(operator, of_exercise, place)
        else:
            fault = f"{place} is {gpu} here, and {gpu_name(place)} in the process of the proof: CUDA_VISIBLE_DEVICES?"
        if place != SIMULATOR:
            torch.cuda.synchronize()
    except RuntimeError as error:
        # torch has a class for what its allocator says; of the driver's error CuPy and torch tell the name
        if isinstance(error, torch.cuda.OutOfMemoryError) or re.search("out.of.memory", str(error), re.IGNORECASE):
            fault, lasting = f"the GPU has no room for the proof now ({one_line(str(error))}).", False
        else:
            fault = f"{type(error).__name__}: {one_line(str(error))}."
            said = str(error).partition("\n")[0]
            of_kernels = isinstance(error, CompileError | SimulatorError) or _FAULTS.search(said)
            of_machine = isinstance(error, ToolError) or "timed out" in said
            lasting = lasting and bool(of_kernels) and not of_machine
    write_atomically(Path(report), json.dumps([fault, lasting]).encode())


def exercise_of(exercise: str) -> Callable[[str], Iterator[Comparison]]:
    """The function that "module:function" names."""
    module, _, function = exercise.partition(":")
    found: Callable[[str], Iterator[Comparison]] = getattr(importlib.import_module(module), function)
    return found


def first_fault(operator: Operator, exercise: Callable[[str], Iterator[Comparison]], place: str) -> str:
    """What is wrong with the kernels of an operator: one sentence, empty if nothing is."""
    simulated = place == SIMULATOR
    if simulated:
        device, arch = "cpu", 90
    else:
        torch.cuda.set_device(place)
        device, (major, minor) = place, torch.cuda.get_device_capability()
        arch = 10 * major + minor
    launched: list[str] = []
    original = Kernels.launch
    side = None if simulated else torch.cuda.Stream()  # type: ignore[no-untyped-call]
    now, then = None, side  # the cases take turns

    def recorded(self: Kernels, name: str, *arguments: Any, **options: Any) -> None:
        launched.append(name)
        if side is not None and torch.cuda.current_stream() == side:
            # a kernel that is not on this stream comes too early for what follows
            torch.cuda._sleep(1_000_000)  # type: ignore[no-untyped-call]
        original(self, name, *arguments, **options)

    Kernels.launch = recorded  # type: ignore[method-assign]
    try:
        with backend(SIMULATOR if simulated else "kernel"):
            comparisons = exercise(device)
            while True:
                before = len(launched)
                with contextlib.nullcontext() if now is None else torch.cuda.stream(now):
                    if (comparison := next(comparisons, None)) is None:
                        break
                    if fault := _fault(comparison):
                        return fault
                if side is not None:
                    torch.cuda.synchronize()
                if len(launched) > before:
                    now, then = then, now
    finally:
        Kernels.launch = original  # type: ignore[method-assign]
    if missed := operator.names(arch) - set(launched):
        return f"the exercise did not launch {', '.join(sorted(missed))}."
    return ""


def _fault(comparison: Comparison) -> str:
    what, found, exact, bound = comparison
    if found.shape != exact.shape:
        return f"{what} has the shape {tuple(found.shape)} instead of {tuple(exact.shape)}."
    got = found.detach().cpu().double()
    near = (got - exact).abs() <= bound  # NaN is not
    same = (got == exact) | (got.isnan() & exact.isnan())
    wrong = ~torch.where(exact.isfinite(), near, same)
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
    relative: Mapping[torch.dtype, float],
    of_terms: float,
    magnitudes: Callable[..., Tensor] | None = None,
    shifted: bool = False,
    signal: Tensor | None = None,
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
        What the tests allow: a share of the exact result, by the dtype of what was found, and a share of the terms that
        it is summed from.
    magnitudes : callable, optional
        f for operands without signs, whose value and gradients are the sums of the terms' magnitudes. Without it the
        largest number of a result stands for them.
    shifted : bool
        Whether operands and the gradient of the result begin inside a pack of 16 bytes. Otherwise they begin with one,
        as they do when nothing was cut off: only then are rows of a suitable length accessed in packs.
    signal : Tensor, optional
        The gradient of the result, if not :func:`signals`.
    """
    exactly = [x.double() for x in operands]
    if signal is None:
        with torch.no_grad():
            shape = function(*exactly).shape
        signal = signals(*shape, dtype=operands[0].dtype)
    there = [begins_within_a_pack(x, device) if shifted else x.to(device) for x in (*operands, signal)]
    found = differentiated(function, there[:-1], there[-1])
    exact = differentiated(function, exactly, signal.double())
    if magnitudes is None:
        terms = [torch.where(x.isfinite(), x.abs(), 0).max() for x in exact]
    else:
        terms = differentiated(magnitudes, [x.abs() for x in exactly], signal.double().abs())
    named = ("the result", *(f"the gradient of operand {k}" for k in range(1, len(exact))))
    for name, one, other, sums in zip(named, found, exact, terms, strict=True):
        smallest = 2.0**-24 if one.dtype == torch.float16 else 0.0
        bound = SLACK * (relative[one.dtype] * other.abs() + of_terms * sums + smallest)
        case = f"{what}, {str(one.dtype)[6:]}, {tuple(operands[0].shape)}{', shifted' if shifted else ''}"
        yield Comparison(f"{case}: {name}", one, other, bound)
