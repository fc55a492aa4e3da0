import copy
import json
from contextlib import nullcontext

import pytest

from companion.study import results


@pytest.fixture
def finished():
    return {
        "experiment": "apa-toy",
        "preset": "laptop",
        "finished": True,
        "description": "A toy.",
        "settings": {"epochs": 1},
        "seeds": [0],
        "rows": [{"activation": "relu", "seed": 0, "test_accuracy": 0.5, "lam_by_layer": [0.1, None]}],
        "tuning": [],
        "chosen": [],
        "smoke": [{"activation": "relu", "seed": 0, "first_losses": [2.3, None], "test_accuracy": 0.1}],
        "provenance": {
            "versions": {"python": "3.11", "torch": "2.11", "numpy": "2", "companion": "0.1.0"},
            "hardware": {"cpu": "A CPU", "gpu": None},
            "threads": 1,
            "duration_seconds": 1.5,
            "date": "2026-01-01",
            "git": {"commit": None, "dirty": True},
        },
    }


@pytest.fixture
def data(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(results, "data_path", lambda: tmp_path)
    return tmp_path


def save(data, result, name="apa-toy-laptop"):
    (data / "results" / f"{name}.json").write_text(json.dumps(result))


def test_data_path_holds_the_three_folders():
    assert {"published", "results", "claims"} <= {path.name for path in results.data_path().iterdir()}


def test_a_finished_result_loads_as_it_was_written(data, finished):
    save(data, finished)
    assert results.load("apa-toy") == finished


def test_an_outdated_result_loads_with_its_reason(data, finished):
    save(data, {**finished, "outdated": "Other batches."})
    assert results.load("apa-toy")["outdated"] == "Other batches."


def test_names_lists_the_results_of_one_preset(data, finished):
    save(data, finished)
    save(data, {**finished, "preset": "full"}, "apa-other-full")
    assert results.names() == ["apa-toy"]
    assert results.names("full") == ["apa-other"]


def test_a_missing_result_names_its_file_and_the_command_that_makes_it(data):
    with pytest.raises(FileNotFoundError, match=r"apa-none-full\.json") as error:
        results.load("apa-none", "full")
    assert "python -m companion experiments run apa-none --preset full" in str(error.value)


@pytest.mark.parametrize("finished_flag", [False, None, 1])
def test_a_run_that_is_not_finished_does_not_load(data, finished, finished_flag):
    save(data, {**finished, "finished": finished_flag})
    with pytest.raises(ValueError, match="not a finished result"):
        results.load("apa-toy")


def test_a_file_that_holds_another_result_does_not_load(data, finished):
    save(data, {**finished, "experiment": "apa-other"})
    with pytest.raises(ValueError, match="holds apa-other-laptop"):
        results.load("apa-toy")


def _without_rows(result):
    result["rows"] = []


def _with_a_host(result):
    result["provenance"]["host"] = "here"


def _with_a_nested_cell(result):
    result["rows"][0]["extra"] = {"deep": 1}


def _outdated_without_a_reason(result):
    result["outdated"] = ""


@pytest.mark.parametrize("odd", ["0.5", True, [0.5]])
def test_a_list_in_a_cell_has_numbers_and_gaps_and_nothing_else(finished, odd):
    for numbers, fits in (([1, 0.5, None], True), ([1, 0.5, None, odd], False)):
        finished["rows"][0]["by_epoch"] = numbers
        with nullcontext() if fits else pytest.raises(ValueError, match=r"breaks result\.schema\.json"):
            results.check(finished, "list")


@pytest.mark.parametrize("damage", [_without_rows, _with_a_host, _with_a_nested_cell, _outdated_without_a_reason])
def test_the_schema_refuses_what_a_result_must_not_be(finished, damage):
    damaged = copy.deepcopy(finished)
    damage(damaged)
    with pytest.raises(ValueError, match=r"breaks result\.schema\.json"):
        results.check(damaged, "damaged")


@pytest.mark.parametrize("seeds", [[0, 1], [1], []])
def test_rows_must_be_of_the_seeds_that_the_result_names(finished, seeds):
    with pytest.raises(ValueError, match="rows of other seeds"):
        results.check({**finished, "seeds": seeds}, "damaged")


def test_a_measurement_without_seeds_is_a_result(finished):
    results.check({**finished, "seeds": [], "rows": [{"operator": "aglu", "milliseconds": 1.5}]}, "bench")


def test_without_fastjsonschema_a_result_still_loads_and_an_unfinished_one_does_not(data, finished, monkeypatch):
    monkeypatch.setattr(results.importlib.util, "find_spec", lambda name: None)
    save(data, finished)
    assert results.load("apa-toy") == finished
    with pytest.raises(ValueError, match="not a finished result"):
        results.check({**finished, "finished": False}, "unfinished")


@pytest.mark.parametrize("with_schema", [True, False])
@pytest.mark.parametrize(
    "key", ["experiment", "description", "settings", "seeds", "rows", "tuning", "smoke", "provenance"]
)
def test_a_wrong_type_names_the_file_and_the_key(data, finished, monkeypatch, key, with_schema):
    if not with_schema:
        monkeypatch.setattr(results.importlib.util, "find_spec", lambda name: None)
    for wrong in (3, None, [3], [[0]], {"a": []}):
        if isinstance(wrong, type(finished[key])) and not isinstance(wrong, list):
            continue
        save(data, {**finished, key: wrong})
        with pytest.raises(ValueError, match=rf"apa-toy-laptop\.json.*{key}"):
            results.load("apa-toy")
    save(data, {name: value for name, value in finished.items() if name != key})
    with pytest.raises(ValueError, match=rf"apa-toy-laptop\.json.*{key}"):
        results.load("apa-toy")


@pytest.mark.parametrize("content", [b"", b'{"finished": tr', b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_named(data, content):
    (data / "results" / "apa-toy-laptop.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"apa-toy-laptop\.json is damaged: it is no JSON"):
        results.load("apa-toy")


@pytest.mark.parametrize("preset", ["laptop", "full"])
def test_every_committed_result_fits_the_schema(preset):
    for name in results.names(preset):
        assert results.load(name, preset)["rows"]
