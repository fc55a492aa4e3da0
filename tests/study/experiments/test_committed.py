import json

import pytest

from tests.study.experiments import committed

ROWS = [{"activation": "relu", "seed": 0, "first_losses": [2.3, 2.0], "accuracy": 0.5}]
OTHERS = [{**ROWS[0], "first_losses": [2.3, 1.9]}]


def judge(folder, monkeypatch, smoke, **mark):
    monkeypatch.setattr(committed, "FOLDER", folder)
    name = "apa-digits-laptop.json"
    (folder / name).write_text(json.dumps({"experiment": "apa-digits", "smoke": smoke, **mark}))
    committed.assert_current(name, {"apa-digits": {"rows": ROWS}})


def test_a_result_by_code_that_gave_other_numbers_is_named_as_outdated(tmp_path, monkeypatch):
    judge(tmp_path, monkeypatch, ROWS)
    with pytest.raises(
        AssertionError, match=r"apa-digits-laptop\.json is by code that gave other numbers: first_losses"
    ):
        judge(tmp_path, monkeypatch, OTHERS)


def test_a_result_without_smoke_values_is_outdated(tmp_path, monkeypatch):
    with pytest.raises(AssertionError, match="there were 0 rows and are 1"):
        judge(tmp_path, monkeypatch, [])


def test_an_outdated_result_may_say_so_but_not_in_vain(tmp_path, monkeypatch):
    judge(tmp_path, monkeypatch, OTHERS, outdated="Other batches.")
    with pytest.raises(AssertionError, match="says that it is outdated, but today's code gives its numbers"):
        judge(tmp_path, monkeypatch, ROWS, outdated="Other batches.")
