"""What calls of public functions are drawn from, in every room: `tests.fuzz` asks what must hold of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

INF, NAN = math.inf, math.nan
NO_DIM = (1.5, "0", None, True)

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


LAYOUTS = ("contiguous", "transposed", "channels last", "expanded", "every other", "misaligned")


SPECIAL = (INF, -INF, NAN, 0.0, -0.0, 1e-30, -1e-30, 3e38, -3e38, 60000.0)


@dataclass(frozen=True)
class Numbers:
    """A tensor, so short that a failing example can be read."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str = "contiguous"
    kind: str = "normal"
    size: float = 1.0
    positive: bool = False
    needs_grad: bool = False
    seed: int = 0

    def made(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        x = torch.randn(self.shape, dtype=torch.float64, generator=generator)
        match self.kind:
            case "integers":
                x = x.mul(2).round()
            case "shifted":
                x = x + 30
            case "equal":
                x = torch.ones_like(x)
            case "zeros":
                x = torch.zeros_like(x)
        x = (x.abs() if self.positive else x) * self.size
        if self.kind == "special":
            chosen = torch.tensor(SPECIAL, dtype=torch.float64)
            pick = torch.randint(2 * len(SPECIAL), self.shape, generator=generator)
            x = torch.where(pick < len(SPECIAL), chosen[pick % len(SPECIAL)], x)
        return _laid(x.to(self.dtype), self.layout).requires_grad_(self.needs_grad)


def _laid(x: Tensor, layout: str) -> Tensor:
    """The numbers in another order of memory; expanded, a few of them."""
    match layout:
        case "transposed":
            return x.mT.contiguous().mT if x.ndim > 1 else x
        case "channels last":
            return x.movedim(1, -1).contiguous().movedim(-1, 1) if x.ndim > 1 else x
        case "expanded":
            return x[:, :1].expand(x.shape) if x.ndim > 1 else x[:1].expand(x.shape) if x.ndim else x
        case "every other":
            return torch.stack([x, x + 1], -1)[..., 0]
        case "misaligned":
            return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
    return x


@dataclass(frozen=True)
class Case:
    """A call: the function, its operands in order, and what is around it."""

    function: str
    operands: tuple[Numbers | float, ...]
    options: tuple[tuple[str, Any], ...] = ()
    context: str = "none"
    neighbours: str = "none"
    transform: str = "none"
    backend: str = "torch"
    poisoned: bool = False
    in_pieces: bool = False
    seed: int = 0

    @property
    def dtype(self) -> torch.dtype:
        return self.operands[0].dtype  # type: ignore[union-attr]


@dataclass(frozen=True)
class Drawn:
    """A public function, and what is known of its calls."""

    function: Callable[..., Tensor]
    #: The same in double precision.
    formula: Callable[..., Tensor]
    calls: st.SearchStrategy[Case]
    #: The names of the tensors; after them, weights and biases in turn.
    names: str
    #: For an operand or an option by its name: what is no value for it.
    wrong: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    #: A module, a name in it and a number: what large tensors are cut into, so small that small ones are cut, too.
    pieces: tuple[Any, str, int] | None = None
    #: What the kernels can compute of a call.
    simulated: Callable[[Case], Case] = lambda case: case
    #: Whether the kernel rounds what it computes on the way to the 16 bits of the input.
    is_narrow: Callable[[Case], bool] = lambda case: False
    #: Where terms may cancel: of absolute operands, what has the sizes of the terms as its values and derivatives.
    magnitudes: Callable[..., Tensor] | None = None
    #: Whether parameters are cast to the input's dtype.
    casts: bool = False
    #: Whether a longer operand may fit, since it broadcasts.
    broadcasts: bool = False


sizes = st.sampled_from([3, 1, 2, 4, 5, 8, 9, 3, 2, 4, 5, 0])


seeds = st.integers(0, 10**6)


dtypes = st.sampled_from(DTYPES)


@st.composite
def numbers(draw: Any, shape: Sequence[int], dtype: torch.dtype | None = None, **given: Any) -> Numbers:
    dtype = dtype or draw(dtypes)
    given = {
        "layout": draw(st.sampled_from(LAYOUTS)),
        "kind": draw(st.sampled_from(("normal", "normal", "integers", "shifted", "equal", "zeros"))),
        # a product of four such numbers is one of float32
        "size": draw(st.sampled_from((1.0, 0.1, 10.0, 1e-3) + (() if dtype == torch.float16 else (1e-6, 1e4)))),
        "needs_grad": draw(st.sampled_from((True, True, True, False))),
    } | given
    return Numbers(tuple(shape), dtype, seed=draw(seeds), **given)


@st.composite
def shapes(draw: Any, least: int, most: int = 4) -> tuple[int, ...]:
    shape = draw(st.lists(sizes, min_size=least, max_size=most).filter(lambda shape: math.prod(shape) <= 400))
    return tuple(shape)


def as_narrow(z: Numbers, *others: Numbers) -> tuple[Numbers, ...]:
    """Parameters that are cast to float16 hold what it holds."""
    if z.dtype != torch.float16:
        return z, *others
    return z, *(replace(other, size=min(max(other.size, 0.1), 10.0)) for other in others)
