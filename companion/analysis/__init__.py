"""Measures that experiments report and statistics that tables and claims rest on."""

from companion.analysis.attention import attention_entropy
from companion.analysis.distributions import ks_distance, skewness
from companion.analysis.statistics import Comparison, Interval, compare, holm, interval, paired

__all__ = [
    "Comparison",
    "Interval",
    "attention_entropy",
    "compare",
    "holm",
    "interval",
    "ks_distance",
    "paired",
    "skewness",
]
