"""What the paper on APA and AGLU says of its functions, judged by computation."""

from __future__ import annotations

import math

from tests.claims.apa.facts import aglu, gelu, grid
from tests.claims.form import ROUNDING, Verdict, at_most, claim, graded, swap

PAGE = "mechanisms/apa"


@claim(
    "apa-silu",
    "At κ = λ = 1 AGLU is SiLU.",
    "Section IV-A, Table I",
    severity="matters",
    chapter=PAGE,
    turned_by=swap(aglu=lambda z, kappa, lam: gelu(z)),
)
def test_silu():
    worst = max(abs(aglu(z, 1, 1) - z / (1 + math.exp(-z))) for z in grid(-30, 30, 601))
    return Verdict(graded(worst < ROUNDING), f"AGLU(z, 1, 1) and zσ(z) differ by {at_most(worst)} on [−30, 30].")
