"""Every public function at operands that nobody chose: `make zoo` draws two thousand cases, the tests some.

What is expected is written here a second time, as the formula in double precision. How far a result may be from it is
what a small relative change of the operands does to the exact result, and some units of the last place.
``python -m tests.fuzz SEED`` draws the same cases again.
"""

from __future__ import annotations

import contextlib
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import hypothesis
import torch
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from torch import Tensor

import companion
from tests.cases import of_rooms
from tests.drawing import DTYPES, INF, NAN, Case, Drawn, Numbers, seeds

#: Relative errors of a result, and the relative change of the operands that stands for rounding on the way.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}
ROUNDING = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-6, torch.float16: 1e-6}
CHANGES, TIMES = 4, 20
#: What rounding on the way is on tensor cores, where the numbers between two layers have 16 bits.
NARROW = {torch.bfloat16: 2e-3, torch.float16: 2.5e-4}

# --- what is drawn ---------------------------------------------------------------------------------------------------

#: Each in the tests of its room.
DRAWN: dict[str, Drawn] = of_rooms("DRAWN", "drawn")
calls = st.sampled_from(list(DRAWN)).flatmap(lambda name: DRAWN[name].calls)

CONTEXTS = (*["none"] * 5, "no_grad", "inference_mode", "autocast")
NEIGHBOURS = ("none", "none", "before", "after", "operand")
TRANSFORMS = (*["none"] * 6, "second", "batched", "vmap", "jvp")


@st.composite
def cases(draw: Any) -> Case:
    """A call and what is around it."""
    case: Case = draw(calls)
    special = any(isinstance(x, Numbers) and x.kind == "special" for x in case.operands)
    transform = draw(st.sampled_from(("none", "vmap") if special else TRANSFORMS))
    if transform == "second":  # what is promised of these in float32 has no small numbers among large ones
        # and at a kink there are none
        kind = {"kind": "normal"} if DRAWN[case.function].casts else {}
        doubled = (
            replace(x, dtype=torch.float64, size=min(x.size, 1.0), **kind) if isinstance(x, Numbers) else x
            for x in case.operands
        )
        case = replace(case, operands=tuple(doubled))
    if ("activation", "gelu") in case.options:  # torch's own keeps no small numbers: see exact_outcome
        transform = "none"
    around = {} if transform != "none" else {"neighbours": draw(st.sampled_from(NEIGHBOURS))}
    around |= {"context": draw(st.sampled_from(CONTEXTS))} if transform in ("none", "vmap") else {}
    around |= {"poisoned": draw(st.booleans()), "in_pieces": draw(st.booleans()), "seed": draw(seeds)}
    return replace(case, transform=transform, **around)


@st.composite
def simulated(draw: Any) -> Case:
    """A call that goes through the kernels, as their source is run by the simulator."""
    case: Case = draw(calls)
    z = replace(case.operands[0], dtype=draw(st.sampled_from([d for d in DTYPES if d != torch.float64])))
    z = replace(z, size=min(z.size, 10.0))
    case = DRAWN[case.function].simulated(replace(case, operands=(z, *case.operands[1:])))
    return replace(
        case,
        backend="simulator",
        neighbours=draw(st.sampled_from(NEIGHBOURS)),
        seed=draw(seeds),
    )


# --- what must hold --------------------------------------------------------------------------------------------------


def _tensors(operands: Iterable[Any]) -> list[Tensor]:
    return [x for x in operands if isinstance(x, Tensor)]


def outcome(function: Callable[..., Tensor], operands: Sequence[Any], g: Tensor, case: Case) -> list[Tensor]:
    """What comes out of a call: the value, and what the transform or a backward pass adds."""
    match case.transform:
        case "vmap":
            dims = tuple(0 if isinstance(x, Tensor) else None for x in operands)
            with torch.autocast("cpu", enabled=False):  # it knows no stack of float16
                pairs = [torch.stack([x, x.flip([*range(x.ndim)])]) if isinstance(x, Tensor) else x for x in operands]
            return [torch.func.vmap(function, dims)(*pairs)]
        case "jvp":
            at = [i for i, x in enumerate(case.operands) if isinstance(x, Numbers)]

            def of_tensors(*given: Tensor) -> Tensor:
                every = list(operands)
                for i, x in zip(at, given, strict=True):
                    every[i] = x
                return function(*every)

            detached = tuple(operands[i].detach().clone() for i in at)  # torch refuses expanded ones
            return list(torch.func.jvp(of_tensors, detached, tuple(x.clamp(-1, 1) for x in detached)))
    wanted = [x for x in _tensors(operands) if x.requires_grad]
    used = list(operands)
    if case.neighbours in ("before", "operand"):
        used[0] = used[0].clone()
    if case.neighbours == "before":
        used[0].mul_(1)
    y = function(*used)
    recorded = torch.is_grad_enabled() and not y.is_inference()
    assert y.requires_grad == (bool(wanted) and recorded), "requires_grad"
    if case.neighbours == "operand":
        used[0].zero_()
    if case.neighbours == "after":
        y.neg_()
        g = -g
    if not y.requires_grad:
        return [y]
    if case.transform == "batched":
        g = torch.stack([g, 2 * g])
        return [y, *torch.autograd.grad(y, wanted, g, is_grads_batched=True, materialize_grads=True)]
    if case.transform != "second":
        return [y, *torch.autograd.grad(y, wanted, g, materialize_grads=True)]
    g = g.clone().requires_grad_()
    first = torch.autograd.grad(y, wanted, g, create_graph=True, materialize_grads=True)
    weights = (torch.arange(x.numel(), dtype=x.dtype).view(x.shape) % 3 - 1 for x in first)
    mixed = (0 * g).sum() + sum((w * x).sum(dtype=torch.float64) for w, x in zip(weights, first, strict=True))
    return [y, *first, *torch.autograd.grad(mixed, [*wanted, g], materialize_grads=True)]


def _exact_operands(case: Case, operands: Sequence[Any]) -> list[Tensor]:
    """The numbers that the function computes with, in double precision."""
    z = operands[0]
    parameter = z.dtype if DRAWN[case.function].casts else torch.promote_types(z.dtype, torch.float32)
    exact = [
        torch.tensor(float(x), dtype=torch.float64) if not isinstance(x, Tensor) else x.detach().to(parameter)
        for x in operands[1:]
    ]
    return [z.detach().double(), *(x.double() for x in exact)]


def _changed(x: Tensor, by: float, generator: torch.Generator) -> Tensor:
    return x * (1 + by * torch.randn(x.shape, dtype=torch.float64, generator=generator))


def exact_outcome(case: Case, operands: Sequence[Any], g: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """What the formula gives, and how far it moves where the operands move by what rounding does."""
    options = dict(case.options)
    formula = partial(DRAWN[case.function].formula, **options)
    given, generator = _exact_operands(case, operands), torch.Generator().manual_seed(case.seed)
    needs = [isinstance(x, Tensor) and x.requires_grad and _records(case) for x in operands]
    plain = replace(case, neighbours="none")
    found = []
    rounding = NARROW[case.dtype] if DRAWN[case.function].is_narrow(case) else ROUNDING[case.dtype]
    for by in (0.0, *[rounding] * CHANGES):
        moved = [_changed(x, by, generator).requires_grad_(need) for x, need in zip(given, needs, strict=True)]
        found.append([x.detach() for x in outcome(formula, moved, _changed(g.double(), by, generator), plain)])
    exact, *others = found
    moves = [
        torch.stack([(x - y).abs() for y in ys]).amax(0) for x, ys in zip(exact, zip(*others, strict=True), strict=True)
    ]
    if magnitudes := DRAWN[case.function].magnitudes:
        # sums are right to some units of their terms
        largest = [x.abs().requires_grad_(need) for x, need in zip(given, needs, strict=True)]
        sums = outcome(partial(magnitudes, **options), largest, g.double().abs(), plain)
        moves = [move + ROUNDING[case.dtype] * x.detach().abs() for move, x in zip(moves, sums, strict=True)]
    if case.transform == "second":  # sums of terms of which none is much more than 1
        moves = [move + ROUNDING[torch.float64] for move in moves]
    return exact, moves


def _records(case: Case) -> bool:
    return case.context not in ("no_grad", "inference_mode")


def _spacing(dtype: torch.dtype) -> float:
    """Of the smallest numbers."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def assert_near(got: Tensor, exact: Tensor, move: Tensor, tolerance: float, least: float, what: str) -> None:
    """NaN where the formula has it, and near it elsewhere; beyond the largest number of a dtype, as large."""
    assert got.shape == exact.shape, f"{what}: got shape {tuple(got.shape)}, expected {tuple(exact.shape)}"
    most = torch.finfo(got.dtype).max
    value, exact = got.detach().double().clamp(-most, most), exact.clamp(-most, most)
    least += _spacing(got.dtype)
    assert torch.equal(value.isnan(), exact.isnan()), f"{what}: NaN in another place: {got}, expected {exact}"
    allowed = tolerance * exact.abs() + TIMES * move.nan_to_num(0.0, INF) + least
    wrong = (value - exact).abs() > allowed
    assert not wrong.any(), f"{what}: got {value[wrong]}, expected {exact[wrong]}, allowed is {allowed[wrong]}"


@contextlib.contextmanager
def _around(case: Case) -> Any:
    contexts = {
        "none": contextlib.nullcontext(),
        "no_grad": torch.no_grad(),
        "inference_mode": torch.inference_mode(),
        "autocast": torch.autocast("cpu", torch.bfloat16),
    }
    with companion.backend(case.backend), contexts[case.context], contextlib.ExitStack() as stack:
        pieces = {each.pieces for each in DRAWN.values() if each.pieces} if case.in_pieces else ()
        for place, name, few in pieces:
            stack.enter_context(mock.patch.object(place, name, few))
        yield


def check(case: Case) -> None:
    """All properties of a call."""
    function = partial(DRAWN[case.function].function, **dict(case.options))
    operands = [x.made() if isinstance(x, Numbers) else x for x in case.operands]
    before = [x.detach().clone() for x in _tensors(operands)]
    with _around(case):
        y = function(*operands)
    assert (y.dtype, y.device) == (case.dtype, operands[0].device)
    g = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(case.seed)).to(y.dtype)
    exact, moves = exact_outcome(case, operands, g)
    with _around(case):
        try:
            got = outcome(function, operands, g, case)
        except RuntimeError as error:
            if case.neighbours != "operand" or "modified by an inplace operation" not in str(error):
                raise
            got, exact, moves = [y], exact[:1], moves[:1]
    # where numbers vanish in the dtype of the computation, and what they are then multiplied by
    largest = max([1.0, *(abs(x.size) * 100 for x in case.operands if isinstance(x, Numbers))])
    least = 1e4 * torch.finfo(torch.promote_types(case.dtype, torch.float32)).tiny * largest**3
    if DRAWN[case.function].casts:  # parameters that were cast get gradients that were
        least += _spacing(case.dtype)
    names = ["value", *(f"derivative {i}" for i in range(1, len(got)))]
    sign = -1 if case.neighbours == "after" else 1
    for k, (name, one, other, move) in enumerate(zip(names, got, exact, moves, strict=True)):
        narrow = max(TOLERANCE[case.dtype], TOLERANCE[one.dtype])
        assert_near(one, sign * other if k == 0 else other, move, narrow, least, name)
    for x, old in zip(_tensors(operands), before, strict=True):
        assert torch.equal(x.view(x.shape).nan_to_num(7), old.nan_to_num(7)), "an operand was changed"
    if case.poisoned and operands[0].numel() and case.transform == "none":
        check_poisoned(case, function, operands, least)


def check_poisoned(case: Case, function: Callable[..., Tensor], operands: list[Any], least: float) -> None:
    """One NaN in the input reaches what the formula says, and nothing else is another."""
    z = operands[0].detach().contiguous().clone()
    z.view(-1)[case.seed % z.numel()] = NAN
    poisoned = [z, *(x.detach() if isinstance(x, Tensor) else x for x in operands[1:])]
    value = replace(case, context="no_grad", neighbours="none")
    exact, moves = exact_outcome(value, poisoned, z)
    with _around(case):
        y = function(*poisoned)
    assert_near(y, exact[0], moves[0], TOLERANCE[case.dtype], least, "with a NaN")


# --- what is refused -------------------------------------------------------------------------------------------------

NO_FLOATS: dict[str, Callable[[Tensor], Any]] = {
    "integers": lambda x: x.int(),
    "truth": lambda x: x > 0,
    "complex": lambda x: x.to(torch.complex64),
    "sparse": lambda x: x.detach().to_sparse(),
    "a list": lambda x: x.tolist() if x.ndim else [x.item()],
    "nothing": lambda x: None,
    "one more along the first dimension": lambda x: x.new_zeros(x.shape[0] + 1, *x.shape[1:]) if x.ndim else None,
    "one more dimension": lambda x: x.new_zeros(2, *x.shape) if x.ndim else x.new_zeros(2, 1, 1),
}


def _names(case: Case) -> list[str]:
    """What the operands are called in errors."""
    names = DRAWN[case.function].names.split()
    return (names + ["weights", "biases"] * len(case.operands))[: len(case.operands)]


@st.composite
def refusals(draw: Any) -> tuple[Case, int | str, Any]:
    """A call, one of its operands by its place or one of its options, and what is put in its place."""
    case: Case = draw(calls)
    names, wrong = _names(case), DRAWN[case.function].wrong
    places = [k for k, x in enumerate(case.operands) if isinstance(x, Numbers) or names[k] in wrong]
    at: int | str = draw(st.sampled_from([*places, *(name for name in wrong if name not in names)]))
    name = at if isinstance(at, str) else names[at]
    tensor = not isinstance(at, str) and isinstance(case.operands[at], Numbers)
    if name not in wrong or (tensor and draw(st.booleans())):
        longer = at == 0 or DRAWN[case.function].broadcasts
        ways = [way for way in NO_FLOATS if not (longer and way.startswith("one more"))]
        return case, at, draw(st.sampled_from(ways))
    return case, at, draw(st.sampled_from([(each,) for each in wrong[name]]))


def check_refused(case: Case, at: int | str, wrong: Any) -> None:
    """The error names the argument first."""
    operands: list[Any] = [x.made() if isinstance(x, Numbers) else x for x in case.operands]
    options = dict(case.options)
    given: Any = operands if isinstance(at, int) else options
    given[at] = NO_FLOATS[wrong](given[at]) if isinstance(wrong, str) else wrong[0]
    name = at if isinstance(at, str) else _names(case)[at]
    try:
        DRAWN[case.function].function(*operands, **options)
    except (TypeError, ValueError) as refused:
        message = str(refused)
    else:
        raise AssertionError(f"{name}: {given[at]!r} was taken")
    # of two shapes that do not fit, one is called wrong, and the other is named
    named = re.match(r"\w+: got ", message) and re.search(rf"\b{name}\b", message)
    assert named, f"the error does not name {name}: {message}"


# --- many cases ------------------------------------------------------------------------------------------------------

#: Name, what is drawn, what must hold, and which share of the cases.
KINDS: tuple[tuple[str, st.SearchStrategy[Any], Callable[[Any], None], float], ...] = (
    ("calls", cases(), check, 0.6),
    ("the kernels in the simulator", simulated(), check, 0.1),
    ("refusals", refusals(), lambda drawn: check_refused(*drawn), 0.3),
)


def fuzz(strategy: st.SearchStrategy[Any], holds: Callable[[Any], None], count: int, seed: int | None = None) -> None:
    """Draw ``count`` cases, the same for the same seed, or without one for all time."""

    @hypothesis.settings(
        max_examples=count,
        derandomize=seed is None,
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @hypothesis.given(strategy)
    def property_of(drawn: Any) -> None:
        holds(drawn)

    (property_of if seed is None else hypothesis.seed(seed)(property_of))()


def main(seed: int, count: int = 2000) -> int:
    """Of every kind its share; how many kinds failed."""
    print(f"seed {seed}: python -m tests.fuzz {seed} draws these cases again", flush=True)
    failed = 0
    for name, strategy, holds, share in KINDS:
        start = time.perf_counter()
        try:
            fuzz(strategy, holds, round(share * count), seed)
        except Exception:
            failed += 1
            traceback.print_exc()
        print(f"{time.perf_counter() - start:6.1f} s | {round(share * count)} cases | {name}", flush=True)
    print(f"{len(KINDS) - failed} of {len(KINDS)} kinds of cases hold")
    return failed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else random.SystemRandom().randrange(2**32)))
