"""Experiments that can be killed at any moment, resumed, and trusted: the runner that every mechanism uses.

A mechanism registers its experiments in ``companion/<mechanism>/study/experiments.py``::

    register(Experiment(name="apa-digits", mechanism="apa", presets={...}, cases=..., measure=..., ...))

``python -m companion experiments`` lists, runs, tables, checks, keeps and promotes them.
"""

from companion.study.experiments.registry import (
    Case,
    Experiment,
    Job,
    Row,
    experiments,
    get,
    grid,
    register,
)
from companion.study.experiments.runner import promote, run, runs_path
from companion.study.experiments.tables import table

__all__ = [
    "Case",
    "Experiment",
    "Job",
    "Row",
    "experiments",
    "get",
    "grid",
    "promote",
    "register",
    "run",
    "runs_path",
    "table",
]
