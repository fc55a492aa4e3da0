import copy
import getpass
import json
import math
import platform
import re

import pytest

from companion.study.experiments import Experiment, contributions, grid, run
from companion.study.experiments.__main__ import main

RATES = [0.01, 0.1, 1.0]

#: Not in one piece, since no file of the project names one.
FOLDER = "/".join(("", "home", "somebody", "x"))


def validate(job):
    return -abs(math.log10(job.rate) + 1)


def measure(job):
    return [{"value": job.seed + job.rate}]


def cases(settings):
    return grid(place=["here", "there"], name=settings["names"])


LAPTOP = {
    "seeds": 3,
    "names": ["a", "b"],
    "learning_rates": RATES,
    "tuning_seeds": [1000, 1001],
    "device": "cpu",
    "precision": "float32",
}
TOY = Experiment(
    name="apa-toy",
    mechanism="apa",
    description="A toy.",
    presets={"smoke": {**LAPTOP, "seeds": 1}, "laptop": LAPTOP},
    cases=cases,
    measure=measure,
    validate=validate,
    columns=("value",),
    conditions=("place",),
)


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """The file of a result that can be contributed."""
    monkeypatch.setenv("COMPANION_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CI", "1")
    monkeypatch.setattr(contributions, "get", {"apa-toy": TOY}.__getitem__)
    return run(TOY, "laptop")


def with_change(path, change):
    result = json.loads(path.read_text())
    change(result)
    path.write_text(json.dumps(result))
    return contributions.faults(path)


def test_what_a_run_gave_can_be_contributed(finished, capsys):
    assert contributions.faults(finished) == []
    assert main(["check", str(finished)]) == 0
    shown = capsys.readouterr().out
    assert "can be contributed: 3 seeds" in shown
    assert "12 rows: " in shown


def test_more_seeds_than_the_presets_another_device_and_precision_are_welcome(finished, monkeypatch):
    assert contributions.faults(run(TOY, "laptop", seeds=4)) == []

    def on_a_gpu(result):
        result["settings"] |= {"device": "cuda", "precision": "bfloat16"}
        result["provenance"]["machines"][0]["precision"] = "bfloat16 and float32"
        result["provenance"]["machines"][0]["hardware"]["gpu"] = "Tesla T4"

    assert with_change(finished, on_a_gpu) == []


def test_the_command_names_every_fault_and_ends_with_status_2(finished, capsys):
    result = json.loads(finished.read_text())
    result["seeds"] = [0, 1, 3]
    result["settings"]["epochs"] = 3
    for row in result["rows"]:
        row["seed"] += row["seed"] == 2
    finished.write_text(json.dumps(result))
    assert main(["check", str(finished)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n- ") == 2
    assert "Traceback" not in error


def pop(*path):
    def change(result):
        for key in path[:-1]:
            result = result[key]
        result.pop(path[-1])

    return change


def put(value, *path):
    def change(result):
        for key in path[:-1]:
            result = result[key]
        result[path[-1]] = value

    return change


def another_seed(result):
    for row in result["rows"]:
        row["seed"] += 1
    result["seeds"] = [1, 2, 3]


def one_seed_fewer(result):
    result["provenance"]["row_machines"] = result["provenance"]["row_machines"][:8]
    result["rows"] = [row for row in result["rows"] if row["seed"] < 2]
    result["seeds"] = [0, 1]


def one_row_less(result):
    result["rows"].pop()
    result["provenance"]["row_machines"].pop()


def another_rate_for_one(result):
    result["rows"][0]["learning_rate"] = 0.3


def a_rate_that_one_did_not_meet(result):
    result["tuning"].pop()
    result["provenance"]["tuning_machines"].pop()


def a_rate_that_one_met_alone(result):
    result["tuning"].append({**result["tuning"][-1], "learning_rate": 3.0})
    result["provenance"]["tuning_machines"].append(0)


def the_best_at_the_edge(result):
    for row in result["tuning"]:
        row["score"] = row["learning_rate"]
    for row in result["chosen"]:
        row.update(learning_rate=1.0, score=1.0, at_edge=True)
    for row in result["rows"]:
        row["learning_rate"] = 1.0


def two_precisions(result):
    machine = copy.deepcopy(result["provenance"]["machines"][0])
    result["provenance"]["machines"].append({**machine, "precision": "tf32"})
    result["provenance"]["row_machines"][0] = 1


def the_node(result):
    result["rows"][0]["where"] = f"on {platform.node() or 'localhost'}, quickly"


def the_user(result):
    result["provenance"]["machines"][0]["hardware"]["cpu"] = f"CPU of {getpass.getuser()}"


MACHINE = ("provenance", "machines", 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (pop("chosen"), "breaks result.schema.json"),
        (put("other", "preset"), "holds apa-toy-other"),
        (put("Another toy.", "description"), "its description is 'Another toy.'"),
        (put("Other batches.", "outdated"), "it is outdated: Other batches."),
        (put(7, "settings", "epochs"), "its setting epochs is 7, and the preset's is"),
        (pop("settings", "device"), "its setting device is None, and the preset's is 'cpu'"),
        (put([0.1, 1.0], "settings", "learning_rates"), r"its setting learning_rates is \[0.1, 1.0\]"),
        (another_seed, r"its seeds are \[1, 2, 3\]; allowed are 0, 1, 2 and so on, 3 of them"),
        (one_seed_fewer, r"its seeds are \[0, 1\]"),
        (one_row_less, "there are no rows for 1 of 12"),
        (another_rate_for_one, "there are no rows for 1 of 12"),
        (put("c", "rows", 0, "name"), "there are rows for 1 that no run would have"),
        (a_rate_that_one_did_not_meet, "its tuning has 23 rows, and 24 are wanted"),
        (a_rate_that_one_met_alone, "its tuning has 25 rows, and 28 are wanted"),
        (put([], "tuning"), "does not say of each of its tuning which machine"),
        (put(0.5, "chosen", 0, "score"), "its chosen learning rates are not those with the best scores"),
        (the_best_at_the_edge, "4 of 4 cases chose a rate at the edge of the grid"),
        (put("", *MACHINE, "hardware", "cpu"), "allowed is a processor's name"),
        (put("Tesla T4", *MACHINE, "hardware", "gpu"), "allowed is a processor's name, and a GPU's where one computed"),
        (put("bfloat16 and float32", *MACHINE, "precision"), "machine 0 computed in bfloat16 and float32"),
        (two_precisions, "were computed in two precisions"),
        (put("built by me", *MACHINE, "versions", "torch"), "the version of torch is 'built by me', which is none"),
        (put("box/one", *MACHINE, "hardware", "cpu"), "the name of its cpu is 'box/one'"),
        (put(f"saved in {FOLDER}", "rows", 0, "where"), f"it names a folder: 'saved in {FOLDER}'"),
        (the_node, "it names this machine or its user"),
        (the_user, "it names this machine or its user"),
        (put(0.5, "smoke", 0, "value"), "its smoke preset: value of row 0 was 0.5 and is"),
    ],
)
def test_a_fault_is_named(finished, change, words):
    assert re.search(words, "\n".join(with_change(finished, change)))


def test_a_smoke_result_an_old_one_and_what_is_no_result_are_refused(finished, tmp_path):
    smoke = finished.with_name("apa-toy-smoke.json")
    assert contributions.faults(smoke) == ["its preset is smoke, which compares nothing"]

    def older(result):
        machine = result["provenance"]["machines"][0]
        for key in ("machines", "row_machines", "tuning_machines", "code"):
            result["provenance"].pop(key)
        result["provenance"] |= {"versions": machine["versions"], "hardware": machine["hardware"]}

    assert "an older version made it" in with_change(finished, older)[0]
    for content, words in (("{", "is damaged"), ("{}", "is not a finished result")):
        finished.write_text(content)
        assert words in contributions.faults(finished)[0]
    assert "No such file" in contributions.faults(tmp_path / "apa-none-laptop.json")[0]
