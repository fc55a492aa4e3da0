"""Smoke presets: each room's tests run them, and ask here what they say, alone and against committed results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from companion.study import results
from companion.study.experiments import get, run
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


def runs(
    keys: Mapping[str, Iterable[str]],
    files: Sequence[str],
    again: Sequence[str] = (),
    rows: Mapping[str, int] | None = None,
) -> type:
    """The tests of smoke presets, which the fixture ``results`` runs.

    Parameters
    ----------
    keys
        By experiment what is read of its rows, beside its columns.
    files
        Of committed results, to be compared.
    again
        Experiments that are run a second time.
    rows
        By experiment how many there are for a case and seed, if not one.
    """

    class Tests:
        @pytest.mark.parametrize("name", keys)
        def test_it_runs_and_gives_the_rows_that_are_read(self, results: Mapping[str, Any], name: str) -> None:
            result, experiment = results[name], get(name)
            cases = experiment.cases(result["settings"])
            assert len(result["rows"]) == len(cases) * len(result["seeds"]) * (rows or {}).get(name, 1)
            for row in result["rows"]:
                assert any(case.items() <= row.items() for case in cases), "a measure has the name of a condition"
                assert row.keys() >= {*keys[name], *experiment.columns}
                shares = [row[key] for key in row if "accuracy" in key or key.startswith("ks_")]
                assert all(0 <= share <= 1 for share in shares if not isinstance(share, list))

        @pytest.mark.parametrize("file", files)
        def test_a_committed_result_is_by_code_that_gives_the_same_numbers_today(
            self, results: Mapping[str, Any], file: str
        ) -> None:
            assert_current(file, results)

        @pytest.mark.parametrize("name", again)
        def test_the_same_seed_gives_the_same_rows(
            self, results: Mapping[str, Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
        ) -> None:
            monkeypatch.setenv("COMPANION_RUNS", str(tmp_path))
            monkeypatch.setenv("CI", "1")
            found = json.loads(run(get(name), "smoke", seeds=1).read_text())["rows"]
            assert found == [row for row in results[name]["rows"] if row["seed"] == 0]

    if not again:
        del Tests.test_the_same_seed_gives_the_same_rows
    return Tests
