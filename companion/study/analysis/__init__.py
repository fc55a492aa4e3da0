"""Measures that experiments report and statistics that tables and claims rest on."""

from companion.study.analysis.activity import fluctuation, quantiles, unit_means
from companion.study.analysis.attacks import margin, projected_gradient
from companion.study.analysis.statistics import (
    Comparison,
    Interval,
    NormalityThenTest,
    alike,
    compare,
    detectable,
    family,
    holm,
    interval,
    normality_then_test,
    paired,
)

__all__ = [
    "Comparison",
    "Interval",
    "NormalityThenTest",
    "alike",
    "compare",
    "detectable",
    "family",
    "fluctuation",
    "holm",
    "interval",
    "margin",
    "normality_then_test",
    "paired",
    "projected_gradient",
    "quantiles",
    "unit_means",
]
