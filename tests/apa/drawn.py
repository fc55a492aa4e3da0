"""APA: its functions as formulas in double precision, calls that nobody chose, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import companion.apa.reference
from companion.functional import aglu, apa
from tests.drawing import INF, NAN, NO_DIM, Case, Drawn, numbers, shapes


def _minus_log_eta(a: Tensor, lam: Tensor) -> Tensor:
    """ln(1 + λ e^(−a))/λ: a series where t = λ e^(−a) is small, λ = 0 among it."""
    u = torch.exp(-a.clamp_min(-200))  # e^(−u) has long been 0
    a, lam = torch.broadcast_tensors(a, lam)
    small = (lam * u < 0.1) & ((lam == 0) | (a > -200))
    series = torch.zeros_like(u)
    for n in reversed(range(18)):
        series = 1 / (n + 1) - torch.where(small, lam * u, 0.0) * series
    large = torch.where(small, 1.0, lam)
    return torch.where(small, u * series, -F.logsigmoid(torch.where(small, 0.0, a) - large.log()) / large)


def formula_apa(z: Tensor, kappa: Tensor, lam: Tensor, dim: int = 1, gated: bool = False) -> Tensor:
    shape = [-1 if d == dim % max(z.ndim, 1) else 1 for d in range(z.ndim)]
    kappa, lam = (p.view(shape) if p.ndim else p for p in (kappa, lam))
    finite = z.clamp(-1e200, 1e200)
    eta = torch.exp(-_minus_log_eta(kappa * finite, torch.where(lam.isinf(), 1.0, lam)))
    eta = torch.where(lam.isinf() & ~z.isnan(), 1.0, eta)
    eta = torch.where(lam < 0, NAN, eta)
    if not gated:
        return eta
    y = finite * eta
    return torch.where(z.isinf() & (y.abs() > 0), z, y)


@st.composite
def of_apa(draw: Any, name: str) -> Case:
    shape = draw(shapes(0))
    dim = draw(st.integers(-len(shape), len(shape) - 1)) if shape else 1
    extreme = draw(st.integers(0, 3)) == 0
    z = draw(numbers(shape, **({"kind": "special", "needs_grad": False} if extreme else {})))
    forms: list[tuple[int, ...]] = [(), (shape[dim],)] if shape else [()]

    def parameter(positive: bool, values: tuple[float, ...]) -> Any:
        # beyond 1e3 the squares in the gradients leave float32
        tensors = st.sampled_from(forms).flatmap(
            lambda form: numbers(
                form,
                positive=positive and not (extreme and form),
                needs_grad=not extreme and draw(st.sampled_from((True, True, True, False))),
                kind=draw(st.sampled_from(("normal", "equal", "zeros"))),
                size=draw(st.sampled_from((1.0, 0.1, 3.0, 1e-3))),
            )
        )
        return draw(st.one_of(st.sampled_from(values), tensors))

    kappa = parameter(False, (1.0, 1.702, 0.1, -2.0, 0.0, 20.0, 3))
    lam = parameter(True, (1.0, 0.0, 0.3, 1e-6, 50.0, 2, *((INF,) if extreme else ())))
    return Case(name, (z, kappa, lam), (("dim", dim),))


WRONG = {"kappa": ("1", None, True, NAN), "lam": ("1", None, False, NAN, -1.0, -1e-9, -INF), "dim": NO_DIM}
PIECES = companion.apa.reference, "CHUNK", 16
DRAWN = {
    "apa": Drawn(apa, formula_apa, of_apa("apa"), "z kappa lam", WRONG, PIECES),
    "aglu": Drawn(aglu, partial(formula_apa, gated=True), of_apa("aglu"), "z kappa lam", WRONG, PIECES),
}
