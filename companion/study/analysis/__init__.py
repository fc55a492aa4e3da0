"""Measures that experiments report and statistics that tables and claims rest on."""

from companion.study.analysis.activity import fluctuation, quantiles, unit_means
from companion.study.analysis.attacks import margin, projected_gradient
from companion.study.analysis.attention import attention_entropy
from companion.study.analysis.distributions import ks_distance, skewness
from companion.study.analysis.early_stopping import EarlyStopping, early_stopping
from companion.study.analysis.responses import sparsity, within_class_share
from companion.study.analysis.statistics import (
    Comparison,
    Interval,
    alike,
    by_seed,
    compare,
    detectable,
    family,
    holm,
    interval,
    paired,
)

__all__ = [
    "Comparison",
    "EarlyStopping",
    "Interval",
    "alike",
    "attention_entropy",
    "by_seed",
    "compare",
    "detectable",
    "early_stopping",
    "family",
    "fluctuation",
    "holm",
    "interval",
    "ks_distance",
    "margin",
    "paired",
    "projected_gradient",
    "quantiles",
    "skewness",
    "sparsity",
    "unit_means",
    "within_class_share",
]
