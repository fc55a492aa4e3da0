"""Committed results against today's code: each room's tests run its smoke presets, and ask here what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from companion.study import results
from companion.study.experiments import get
from companion.study.experiments.provenance import differences

FOLDER = results.data_path() / "results"


def committed(mechanism: str) -> list[str]:
    """Files of the results that a mechanism's experiments gave; those of benchmarks begin with "bench"."""
    return sorted(path.name for path in FOLDER.glob(f"{mechanism}-*.json"))


def assert_current(name: str, today: Mapping[str, Mapping[str, Any]]) -> None:
    """Fails for a result whose smoke values are not today's, unless it says so itself; and if it says so in vain."""
    result = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    experiment = get(result["experiment"])
    found = differences(experiment, result["smoke"], today[experiment.name]["rows"])
    if "outdated" in result:
        assert found, f"data/results/{name} says that it is outdated, but today's code gives its numbers"
    else:
        assert not found, (
            f"data/results/{name} is by code that gave other numbers: {'; '.join(found[:3])}; run it again, or say in "
            'its key "outdated" why not'
        )
