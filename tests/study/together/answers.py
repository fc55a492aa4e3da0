"""Right answers to exercises in several forms, and what is said of wrong ones."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

RIGHT: dict[str, list[Any]] = {
    "which-neuron-1": [2, 2.0, Fraction(2)],
    "how-sharp-1": [0.0512, (0.02 * 16) ** 2 / 2, Fraction(512, 10_000)],
    "composing-1": [-0.3, 98.0 - 97.9 - 97.4 + 97.0, Fraction(-3, 10)],
    "scaling-out-1": [1.2, 3 * 7.2e5 * 1e8 / 5e10 / 3600, Fraction(6, 5)],
}
