import errno
import json
import math
import os
import re
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch

import companion
from companion import files
from companion.study import results, training
from companion.study.experiments import Experiment, grid, parts, promote, provenance, run, runner, unfinished

ROOT = Path(companion.__file__).parents[1]
CALLS = []
LOSSES = [2.3, 1.5, 1.25]


def measure(job):
    CALLS.append(job)
    for loss in LOSSES:
        for listener in training.listeners:
            listener(torch.tensor(loss))
    assert torch.get_num_threads() == 1
    generator = torch.Generator().manual_seed(job.seed)
    return [{"value": torch.rand((), generator=generator).item(), "part": part} for part in ("a", "b")]


def validate(job):
    CALLS.append(job)
    # "good" does best at 0.1, "bad" equally well at all rates but the very small ones.
    return -abs(math.log10(job.rate) + 1) if job.case["name"] == "good" else 0.5 * (job.rate >= 0.01)


def cases(settings):
    return grid(name=settings["names"])


TOY = Experiment(
    name="apa-toy",
    mechanism="apa",
    description="A toy.",
    presets={
        "smoke": {"seeds": 2, "names": ["good"], "epochs": 1},
        "laptop": {
            "seeds": 3,
            "names": ["good", "bad"],
            "learning_rates": [1.0, 0.1, 0.01],
            "tuning_seeds": [1000, 1001],
        },
    },
    cases=cases,
    measure=measure,
    columns=("value",),
)
TUNED = Experiment(**{**vars(TOY), "validate": validate})


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPANION_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CI", "1")
    CALLS.clear()
    return tmp_path / "runs"


def read(path):
    return json.loads(path.read_text())


def test_a_run_gives_one_finished_file_that_fits_the_schema(runs):
    path = run(TOY, "smoke")
    result = read(path)
    results.check(result, path.name)
    assert path == runs / "apa-toy-smoke.json"
    assert result["finished"] is True
    assert result["seeds"] == [0, 1]
    assert [(row["name"], row["seed"], row["part"]) for row in result["rows"]] == [
        ("good", 0, "a"),
        ("good", 0, "b"),
        ("good", 1, "a"),
        ("good", 1, "b"),
    ]
    assert result["tuning"] == result["chosen"] == []


def test_the_same_seeds_give_the_same_rows():
    assert read(run(TOY, "smoke"))["rows"] == read(run(TOY, "smoke"))["rows"]


def test_threads_are_as_before_after_a_run():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(TOY, "smoke")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_every_case_meets_every_rate_with_tuning_seeds_only():
    result = read(run(TUNED, "laptop"))
    tuning = [job for job in CALLS if job.stage == "tuning"]
    evaluation = [job for job in CALLS if job.stage == "evaluation" and "epochs" not in job.settings]
    assert {job.seed for job in tuning} == {1000, 1001}
    assert {job.seed for job in evaluation} == {0, 1, 2}
    tried = {(job.case["name"], job.learning_rate, job.seed) for job in tuning}
    # and one rate more, for both, since the winner of one was the smallest
    assert {rate for _, rate, _ in tried} == {1.0, 0.1, 0.01, 0.003}
    assert len(tried) == len(tuning) == len(result["tuning"]) == 2 * 4 * 2


def test_the_best_rate_is_evaluated_and_the_smaller_of_equals():
    result = read(run(TUNED, "laptop"))
    chosen = {row["name"]: row for row in result["chosen"]}
    assert chosen["good"] == {"name": "good", "learning_rate": 0.1, "score": 0.0, "at_edge": False}
    assert chosen["bad"] == {"name": "bad", "learning_rate": 0.01, "score": 0.5, "at_edge": False}
    assert {(row["name"], row["learning_rate"]) for row in result["rows"]} == {("good", 0.1), ("bad", 0.01)}


@pytest.mark.parametrize(
    ("best", "further"),
    [(1.0, [3.0]), (30.0, [3.0, 10.0, 30.0, 100.0]), (3e-3, [3e-3, 1e-3]), (1e3, [3.0, 10.0, 30.0, 100.0])],
)
def test_a_grid_grows_until_the_best_rate_is_inside_or_four_times(best, further):
    def validate(job):
        return -abs(math.log10(job.rate / best))

    laptop = {**TOY.presets["laptop"], "names": ["good"]}
    tuned = Experiment(**{**vars(TOY), "presets": {**TOY.presets, "laptop": laptop}, "validate": validate})
    result = read(run(tuned, "laptop"))
    assert list(dict.fromkeys(row["learning_rate"] for row in result["tuning"])) == [1.0, 0.1, 0.01, *further]
    inside = best < 1e3
    assert result["chosen"] == [
        {
            "name": "good",
            "learning_rate": best if inside else 100.0,
            "score": pytest.approx(0 if inside else -1),
            "at_edge": not inside,
        }
    ]


def test_a_grid_grows_for_all_under_one_condition_and_for_nobody_else():
    def validate(job):
        best = {"low": 0.03, "high": 0.1 if job.case["name"] == "good" else 3.0}[job.case["noise"]]
        return -abs(math.log10(job.rate / best))

    def noisy(settings):
        return grid(noise=["low", "high"], name=settings["names"])

    changes = {"cases": noisy, "validate": validate, "conditions": ("noise",)}
    settings = {**TOY.presets["laptop"], "learning_rates": [0.01, 0.03, 0.1, 0.3], "tuning_seeds": [1000]}
    changes["presets"] = {**TOY.presets, "laptop": settings}
    result = read(run(Experiment(**{**vars(TOY), **changes}), "laptop", seeds=1))
    tried = {}
    for row in result["tuning"]:
        tried.setdefault((row["noise"], row["name"]), []).append(row["learning_rate"])
    inside, further = [0.01, 0.03, 0.1, 0.3], [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]
    assert tried == {
        ("low", "good"): inside,
        ("low", "bad"): inside,
        ("high", "good"): further,
        ("high", "bad"): further,
    }
    rates = {(row["noise"], row["name"]): row["learning_rate"] for row in result["chosen"]}
    assert rates == {("low", "good"): 0.03, ("low", "bad"): 0.03, ("high", "good"): 0.1, ("high", "bad"): 3.0}


def test_cases_that_are_to_differ_in_nothing_else_share_a_rate():
    result = read(run(Experiment(**{**vars(TUNED), "one_rate_for": ("name",)}), "laptop"))
    assert {(row["name"], row["learning_rate"], row["score"]) for row in result["chosen"]} == {
        ("good", 0.1, 0.25),
        ("bad", 0.1, 0.25),
    }


def test_without_tuning_every_rate_is_evaluated():
    settings = {"seeds": 2, "names": ["good"], "learning_rates": [0.1, 1.0], "tuning_seeds": []}
    result = read(run(Experiment(**{**vars(TOY), "presets": {"smoke": settings}}), "smoke"))
    assert result["tuning"] == result["chosen"] == []
    seen = [(row["learning_rate"], row["seed"]) for row in result["rows"] if row["part"] == "a"]
    assert seen == [(0.1, 0), (0.1, 1), (1.0, 0), (1.0, 1)]


def test_a_preset_without_tuning_seeds_is_not_tuned():
    settings = {"seeds": 2, "names": ["good"], "learning_rates": [0.1], "tuning_seeds": []}
    result = read(run(Experiment(**{**vars(TUNED), "presets": {"smoke": settings}}), "smoke"))
    assert result["tuning"] == result["chosen"] == []
    assert {job.stage for job in CALLS} == {"evaluation"}
    assert {row["learning_rate"] for row in result["rows"]} == {0.1}


def test_a_worker_refuses_code_that_is_newer_than_the_run():
    with pytest.raises(RuntimeError, match="the code has changed since this run began"):
        runner._refuse_other_code(provenance.homes(TOY), "cpu", "0" * 64)


def test_tuning_seeds_must_not_be_evaluated():
    with pytest.raises(ValueError, match=r"tuning_seeds holds \[1000\]"):
        run(TUNED, "laptop", seeds=1001)


def test_resume_computes_only_what_is_missing(runs):
    whole = read(run(TUNED, "laptop"))
    parts = sorted((runs / "apa-toy-laptop").glob("*.json"))
    assert len(parts) == 2 * 4 * 2 + 2 * 3
    for part in parts[::3]:
        part.unlink()
    (runs / "apa-toy-laptop.json").unlink()
    CALLS.clear()
    again = read(run(TUNED, "laptop", resume=True))
    assert len(CALLS) == len(parts[::3])
    assert again["rows"] == whole["rows"]
    assert again["tuning"] == whole["tuning"]


def test_resume_with_more_seeds_keeps_the_first_ones():
    first = read(run(TOY, "smoke", seeds=2))["rows"]
    CALLS.clear()
    more = read(run(TOY, "smoke", seeds=4, resume=True))["rows"]
    assert [job.seed for job in CALLS] == [2, 3]
    assert more[:4] == first


def parts_in(runs, preset="smoke"):
    return sorted((runs / f"apa-toy-{preset}").glob("*.json"))


def test_without_resume_everything_is_computed_again_and_what_is_not_stays(runs):
    run(TOY, "smoke", seeds=4)
    before = {path: path.stat().st_mtime_ns for path in parts_in(runs)}
    CALLS.clear()
    run(TOY, "smoke")
    assert len(CALLS) == 2
    assert parts_in(runs) == list(before)
    assert sum(path.stat().st_mtime_ns != written for path, written in before.items()) == 2


def test_a_half_written_part_is_not_a_part(runs):
    run(TOY, "smoke")
    folder = runs / "apa-toy-smoke"
    part = next(folder.glob("*.json"))
    part.rename(part.with_name(part.name + ".4711.tmp"))
    CALLS.clear()
    run(TOY, "smoke", resume=True)
    assert len(CALLS) == 1


def other_code(monkeypatch):
    monkeypatch.setattr(provenance, "code", lambda homes, device: "f" * 64)
    return TOY


def other_settings(monkeypatch):
    settings = {**TOY.presets["smoke"], "epochs": 2}
    return Experiment(**{**vars(TOY), "presets": {"smoke": settings}})


def other_threads(monkeypatch):
    monkeypatch.setattr(parts, "THREADS", 2)
    return TOY


@pytest.mark.parametrize("change", [other_code, other_settings, other_threads])
def test_parts_of_other_code_settings_or_threads_are_not_mixed_in(change, monkeypatch):
    run(TOY, "smoke")
    experiment = change(monkeypatch)
    CALLS.clear()
    run(experiment, "smoke", resume=True)
    assert len(CALLS) == 2


def test_with_another_competitor_what_the_others_gave_stands():
    def experiment(*competitors):
        preset = {**TUNED.presets["laptop"], "competitors": competitors}
        changes = {
            "presets": {**TUNED.presets, "laptop": preset},
            "cases": lambda told: grid(name=told.get("competitors", ["good"])),
        }
        return Experiment(**{**vars(TUNED), **changes})

    before = read(run(experiment("good"), "laptop"))
    CALLS.clear()
    result = read(run(experiment("bad", "good"), "laptop", resume=True))
    again = [job for job in CALLS if job.case["name"] == "good" and "epochs" not in job.settings]
    assert {(job.stage, job.learning_rate) for job in again} == {("tuning", 0.003)}  # the grid grew for all
    assert [row for row in result["rows"] if row["name"] == "good"] == before["rows"]
    assert [each["settings"]["competitors"] for each in (before, result)] == [["good"], ["bad", "good"]]


def on_another_machine(monkeypatch, precision="float32"):
    machine = {"versions": {**provenance.environment("cpu")["versions"], "numpy": "0"}}
    machine |= {"hardware": {"cpu": "Another", "gpu": None}, "precision": precision}
    monkeypatch.setattr(provenance, "machine", lambda settings: machine)
    monkeypatch.setattr(provenance, "precision", lambda settings: precision)
    return machine


def test_parts_come_from_several_machines_and_each_row_names_its_own(monkeypatch):
    mine = provenance.machine({})
    first = read(run(TUNED, "laptop", seeds=1))
    assert first["provenance"]["machines"] == [mine]
    other = on_another_machine(monkeypatch)
    CALLS.clear()
    result = read(run(TUNED, "laptop", seeds=2, resume=True))
    assert [(job.stage, job.seed) for job in CALLS] == [("evaluation", 1)] * 2
    assert result["provenance"]["machines"] == [mine, other]
    for row, machine in zip(result["rows"], results.machines(result), strict=True):
        assert machine == (other if row["seed"] == 1 else mine)
    assert results.machines(result, "tuning") == [mine] * len(result["tuning"])
    assert not any("machine" in row for row in result["rows"])


def test_what_is_timed_comes_from_one_machine(monkeypatch):
    timed = Experiment(**{**vars(TOY), "timed": True})
    run(timed, "smoke")
    other = on_another_machine(monkeypatch)
    CALLS.clear()
    result = read(run(timed, "smoke", resume=True))
    assert len(CALLS) == 2
    assert result["provenance"]["machines"] == [other]


def test_numbers_that_are_compared_have_one_precision(runs, monkeypatch):
    """One seed is finished in float32, another is not: on a machine with another precision the first one remains."""
    by_name = Experiment(**{**vars(TOY), "conditions": ("name",)})
    for experiment in (TOY, by_name):
        run(experiment, "laptop", seeds=1)
    on_another_machine(monkeypatch, "tf32")
    CALLS.clear()
    result = read(run(TOY, "laptop", seeds=2, resume=True))
    assert {job.seed for job in CALLS if "names" in job.settings and len(job.settings["names"]) == 2} == {1}
    assert [machine["precision"] for machine in results.machines(result)][:4] == ["float32", "float32", "tf32", "tf32"]

    # of the two that meet under seed 1 one is lost
    lost = [path for path in parts_in(runs, "laptop") if '"name": "good"' in path.read_text()]
    for path in lost:
        path.unlink()
    words = (
        r"seed 0 of apa-toy laptop would mix precisions.*: \d+ in tf32, \d+ in float32; this machine computes in tf32"
    )
    CALLS.clear()
    fails(runs, ValueError, words, preset="laptop", seeds=2, resume=True)
    assert CALLS == []
    # but not if they compete under different conditions
    run(by_name, "laptop", seeds=2, resume=True)


def broken(job):
    if job.seed == 1:
        raise RuntimeError("out of memory")
    return measure(job)


def test_a_failing_job_leaves_no_result_and_keeps_the_others(runs):
    with pytest.raises(RuntimeError, match="out of memory"):
        run(Experiment(**{**vars(TOY), "measure": broken}), "smoke")
    assert not (runs / "apa-toy-smoke.json").exists()
    CALLS.clear()
    run(TOY, "smoke", resume=True)
    assert [job.seed for job in CALLS] == [1]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*.json")}


def fails(runs, error, words, experiment=TOY, preset="smoke", **options):
    """The run fails with these words, and every finished file is what it was."""
    before = contents(runs)
    with pytest.raises(error, match=words):
        run(experiment, preset, **options)
    assert contents(runs) == before
    assert not list(runs.rglob("making-*"))


def test_a_run_that_fails_in_a_job_leaves_the_finished_result(runs):
    path = run(TOY, "smoke")
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="out of memory"):
        run(Experiment(**{**vars(TOY), "measure": broken}), "smoke")
    assert path.read_bytes() == before


@pytest.mark.parametrize("module", ["fastjsonschema", "numpy", "scipy", "sklearn", "tqdm"])
def test_a_missing_package_is_named_before_anything_is_touched(runs, monkeypatch, module):
    run(TOY, "smoke")
    CALLS.clear()
    monkeypatch.setitem(sys.modules, module, None)
    fails(runs, ModuleNotFoundError, rf'{module} is missing: pip install ".*\[experiments\]"')
    assert CALLS == []


def test_the_extra_brings_what_is_asked_for():
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = {re.split(r"[><=]", line)[0] for line in lines["experiments"]}
    assert {{"scikit-learn": "sklearn"}.get(name, name) for name in names} == {*runner._PACKAGES, "torchvision"}
    assert set(lines["experiments"]) - set(lines["book"]) == {"numpy"}  # which the others bring


def test_missing_or_damaged_data_are_named_before_anything_is_touched(runs, monkeypatch, tmp_path):
    laptop = {**TOY.presets["laptop"], "dataset": "sgemm"}
    needs_data = Experiment(**{**vars(TOY), "presets": {**TOY.presets, "laptop": laptop}})
    run(TOY, "laptop")
    CALLS.clear()
    monkeypatch.setenv("COMPANION_DATA", str(tmp_path / "data"))

    def no_network(*_, **__):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    fails(runs, FileNotFoundError, "sgemm_product.csv is not in .* no network", needs_data, "laptop")
    (tmp_path / "data" / "SGEMM").mkdir(parents=True)
    (tmp_path / "data" / "SGEMM" / "sgemm_product.csv").write_text("MWG,NWG\n1,2\n")
    fails(runs, ValueError, "sgemm_product.csv is damaged", needs_data, "laptop")
    assert CALLS == []


def test_a_full_disk_is_said_and_nothing_is_lost(runs, monkeypatch):
    run(TOY, "smoke", seeds=3)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_force_to_disk", full)
    fails(runs, OSError, r"No space left on device: '.*apa-toy-smoke/\w+\.json'")


def test_a_disk_that_is_full_at_the_end_leaves_the_parts_and_the_old_result(runs, monkeypatch):
    run(TOY, "smoke")
    write = parts.write_atomically

    def full_at_the_end(path, content):
        if path.name == "apa-toy-smoke.json":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, content)

    monkeypatch.setattr(parts, "write_atomically", full_at_the_end)
    before = (runs / "apa-toy-smoke.json").read_bytes()
    with pytest.raises(OSError, match=r"No space left on device: '.*apa-toy-smoke\.json'"):
        run(TOY, "smoke", seeds=4)
    assert (runs / "apa-toy-smoke.json").read_bytes() == before
    monkeypatch.undo()
    monkeypatch.setenv("COMPANION_RUNS", str(runs))
    CALLS.clear()
    assert read(run(TOY, "smoke", seeds=4, resume=True))["seeds"] == [0, 1, 2, 3]
    assert CALLS == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs a user whom modes can stop")
def test_a_read_only_folder_is_named(runs):
    run(TOY, "smoke")
    (runs / "apa-toy-smoke").chmod(0o500)
    try:
        fails(runs, PermissionError, "apa-toy-smoke")
    finally:
        (runs / "apa-toy-smoke").chmod(0o700)


def test_a_folder_that_cannot_be_made_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COMPANION_RUNS", str(tmp_path / "file"))
    with pytest.raises(OSError, match=f"{tmp_path / 'file'}"):
        run(TOY, "smoke")
    assert CALLS == []


def run_again(job):
    run(TOY, "smoke")
    return measure(job)


def test_a_second_run_in_the_same_folder_at_the_same_time_is_refused(runs):
    second = Experiment(**{**vars(TOY), "measure": run_again})
    fails(
        runs, BlockingIOError, r"another run works in .*apa-toy-smoke; wait for its end, or set COMPANION_RUNS", second
    )
    assert CALLS == []
    run(TOY, "smoke")


def test_two_that_need_the_smoke_preset_at_the_same_time_wait_for_each_other(runs):
    with runner._alone_in(runs / "apa-toy-smoke", 0):
        waiting = threading.Thread(target=runner.smoke, args=(TOY,))
        waiting.start()
        time.sleep(0.5)
        assert CALLS == []
    waiting.join()
    assert len(CALLS) == 2


DAMAGE = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "no text": lambda text: b"\xff\xfe\x00",
    "no object": lambda text: "[1, 2]",
    "a number": lambda text: "3",
    "too deep": lambda text: "[" * 100_000,
}
OF_A_PART = {
    "without its seconds": {"seconds": None},
    "without rows": {"outcome": None},
    "rows of another type": {"outcome": [1]},
    "without its machine": {"machine": None},
    "a word for a number": {"seconds": "1.5"},
}


def spoil(path, how):
    spoilt = DAMAGE[how](path.read_text()) if how in DAMAGE else json.dumps({**read(path), **OF_A_PART[how]})
    path.write_bytes(spoilt if isinstance(spoilt, bytes) else spoilt.encode())


@pytest.mark.parametrize("how", [*DAMAGE, *OF_A_PART])
def test_a_damaged_part_is_named_and_what_is_to_be_done(runs, how):
    run(TOY, "smoke")
    path = parts_in(runs)[1]
    spoil(path, how)
    fails(runs, ValueError, f"{path} is damaged.*; remove that file, and its job is computed again", resume=True)
    path.unlink()
    CALLS.clear()
    run(TOY, "smoke", resume=True)
    assert len(CALLS) == 1


def test_a_part_of_another_job_is_refused(runs):
    run(TOY, "smoke")
    first, second = parts_in(runs)
    first.write_bytes(second.read_bytes())
    fails(runs, ValueError, f"{first} holds another job than its name says", resume=True)


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_result_is_named(runs, checkout, how):
    path = run(TUNED, "laptop")
    spoil(path, how)
    for read_it in (lambda: runner.find("apa-toy", "laptop"), promote, lambda: results.read(path)):
        with pytest.raises(ValueError, match=str(path)):
            read_it()
    assert not list(checkout.iterdir())


def test_a_result_under_another_name_is_refused(runs, checkout):
    path = run(TUNED, "laptop")
    run(TOY, "smoke").write_bytes(path.read_bytes())
    for read_it in (lambda: runner.find("apa-toy", "smoke"), promote):
        with pytest.raises(ValueError, match=r"apa-toy-smoke\.json holds apa-toy-laptop"):
            read_it()
    assert not list(checkout.iterdir())


def dies(job):
    os._exit(3)


def test_a_worker_that_dies_is_told_from_a_fault_of_the_program(runs):
    with pytest.raises(ChildProcessError, match=r"a worker process ended .* the finished jobs are kept, and --resume"):
        run(Experiment(**{**vars(TOY), "measure": dies}), "smoke", workers=2)


def diverged(job):
    return [{"loss": math.inf, "losses": [1.0, math.nan]}]


def test_a_loss_that_diverged_is_written_as_null():
    rows = read(run(Experiment(**{**vars(TOY), "measure": diverged}), "smoke", seeds=1))["rows"]
    assert rows == [{"name": "good", "seed": 0, "loss": None, "losses": [1.0, None], "first_losses": []}]


@pytest.mark.parametrize(("diverging", "chosen", "score", "at_edge"), [(1.0, 0.1, 0.5, False), (0.0, 1e-3, None, True)])
def test_a_rate_at_which_a_run_diverged_is_not_chosen_unless_all_are(diverging, chosen, score, at_edge):
    def validate(job):
        return math.nan if job.rate >= diverging and job.seed == 1000 else 0.5 * (job.rate >= 0.1)

    settings = {"seeds": 1, "names": ["good"], "learning_rates": [1.0, 0.1], "tuning_seeds": [1000, 1001]}
    tuned = Experiment(**{**vars(TOY), "presets": {**TOY.presets, "laptop": settings}, "validate": validate})
    result = read(run(tuned, "laptop"))
    assert [row["score"] for row in result["tuning"] if row["learning_rate"] == 1.0] == [None, 0.5]
    assert result["chosen"] == [{"name": "good", "learning_rate": chosen, "score": score, "at_edge": at_edge}]


def test_the_result_says_what_computed_it_and_nothing_about_who():
    result = read(run(TOY, "smoke"))
    assert result["provenance"]["machines"] == [provenance.machine({})]
    assert result["provenance"]["code"] == provenance.code(provenance.homes(TOY), "cpu")
    assert result["provenance"]["threads"] == 1
    assert result["provenance"]["duration_seconds"] >= 0


def test_a_result_stores_the_rows_of_the_smoke_preset_with_the_first_losses_of_each_training():
    beside = read(run(TOY, "smoke"))
    assert {tuple(row["first_losses"]) for row in beside["rows"]} == {(float(torch.tensor(2.3)), 1.5)}
    assert beside["smoke"] == []
    result = read(run(TUNED, "laptop"))
    assert result["smoke"] == beside["rows"]
    assert not any("first_losses" in row for row in result["rows"])
    assert training.listeners == []


def test_a_preset_for_a_gpu_says_so_without_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    gpu = Experiment(**{**vars(TOY), "presets": {"full": {"seeds": 5, "names": ["good"], "device": "cuda"}}})
    with pytest.raises(ValueError, match="apa-toy full needs a CUDA GPU"):
        run(gpu, "full")


@pytest.mark.parametrize("changes", [{"compiled": True}, {"modes": ["eager", "compiled"]}])
def test_a_gpu_that_only_emulates_bfloat16_is_refused_what_is_compiled_in_it(runs, monkeypatch, changes):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    full = {**TOY.presets["smoke"], "device": "cuda", "precision": "bfloat16", **changes}
    with pytest.raises(ValueError, match=r"apa-toy full is compiled in bfloat16, and Tesla T4 has none: .* 8\.0"):
        run(Experiment(**{**vars(TOY), "presets": {"full": full}}), "full")
    assert not runs.exists()
    here = {**full, "device": "cpu"}
    assert read(run(Experiment(**{**vars(TOY), "presets": {"smoke": here}}), "smoke"))["finished"]
    plain = read(run(Experiment(**{**vars(TOY), "presets": {"smoke": here}}), "smoke", precision="float32"))
    assert plain["settings"]["precision"] == "float32"


@pytest.mark.parametrize("arguments", [{"seeds": 0}, {"workers": 0}])
def test_numbers_below_one_are_refused(arguments):
    with pytest.raises(ValueError, match="allowed is 1 or more"):
        run(TOY, "smoke", **arguments)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    (tmp_path / "data" / "results").mkdir(parents=True)
    monkeypatch.setattr(results, "data_path", lambda: tmp_path / "data")
    return tmp_path / "data" / "results"


def test_a_run_computes_on_another_device_and_says_so(monkeypatch):
    here = Experiment(**{**vars(TOY), "presets": {"smoke": {**TOY.presets["smoke"], "device": "cpu"}}})
    there = Experiment(**{**vars(TOY), "presets": {"smoke": {**TOY.presets["smoke"], "device": "cuda"}}})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="needs a CUDA GPU, and torch finds none; --device cpu does without"):
        run(there, "smoke")
    result = read(run(there, "smoke", device="cpu"))
    assert result["settings"]["device"] == "cpu"
    assert {job.settings["device"] for job in CALLS} == {"cpu"}
    CALLS.clear()
    assert read(run(here, "smoke", resume=True))["rows"] == result["rows"]
    assert CALLS == []
    with pytest.raises(ValueError, match="needs a CUDA GPU"):
        run(here, "smoke", device="cuda")
    with pytest.raises(ValueError, match="device is 'tpu'; apa-toy smoke has cpu, cuda"):
        run(here, "smoke", device="tpu")
    with pytest.raises(ValueError, match="device is 'cpu'; apa-toy smoke has none: its setting has no device"):
        run(TOY, "smoke", device="cpu")


def test_promotion_copies_finished_runs_but_not_smoke(checkout):
    run(TOY, "smoke")
    path = run(TUNED, "laptop")
    assert promote() == ["apa-toy-laptop.json"]
    assert [p.name for p in checkout.iterdir()] == ["apa-toy-laptop.json"]
    assert results.load("apa-toy") == read(path)
    assert promote() == []


@pytest.mark.parametrize("what", ["seeds", "date"])
def test_promotion_refuses_what_is_less_than_what_is_there(checkout, what):
    path = run(TUNED, "laptop")
    promote()
    known, better = checkout / path.name, read(path)
    if what == "date":
        better["provenance"]["date"] = "9999-12-31"
    else:
        last = max(better["seeds"])
        more = [number for number, row in enumerate(better["rows"]) if row["seed"] == last]
        better["seeds"].append(last + 1)
        better["rows"] += [{**better["rows"][number], "seed": last + 1} for number in more]
        machines = better["provenance"]["row_machines"]
        machines += [machines[number] for number in more]
    known.write_text(json.dumps(better))
    with pytest.raises(ValueError, match=f"{what}: got .*, allowed is at least"):
        promote()
    assert read(known) == better


def test_promotion_refuses_what_is_not_finished(runs, checkout):
    path = run(TUNED, "laptop")
    path.write_text(json.dumps({**read(path), "finished": False}))
    with pytest.raises(ValueError, match="not a finished result"):
        promote()
    assert not list(checkout.iterdir())


@pytest.mark.parametrize(
    ("references", "why"),
    [
        ([], "no reference was timed"),
        ([{"least": 1.0, "median": 1.1}, {"least": 1.0, "median": 1.3}], "up to 1.30 ms"),
        (
            [{"least": 1.0, "median": 1.1}, {"least": 1.4, "median": 1.4}],
            "up to 1.40 ms",
        ),
        ([{"least": 1.0, "median": 1.1}, {"least": 1.1, "median": 1.2}], None),
    ],
)
def test_promotion_refuses_a_benchmark_beside_which_the_reference_was_slow(runs, checkout, references, why):
    result = read(run(TUNED, "laptop"))
    (runs / "apa-toy-laptop.json").unlink()
    settings = {**result["settings"], "reference_ms": references}
    bench = {**result, "experiment": "bench-toy", "preset": "cpu", "settings": settings}
    (runs / "bench-toy-cpu.json").write_text(json.dumps(bench))
    if why is None:
        assert promote() == ["bench-toy-cpu.json"]
    else:
        with pytest.raises(ValueError, match=why):
            promote()
        assert not list(checkout.iterdir())


def test_promotion_needs_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "data_path", lambda: tmp_path / "_data")
    with pytest.raises(FileNotFoundError, match="no checkout"):
        promote()


def test_a_run_is_found_before_a_promoted_result(runs, checkout):
    run(TUNED, "laptop")
    promote()
    assert runner.find("apa-toy", "laptop")[1] == "runs"
    (runs / "apa-toy-laptop.json").unlink()
    assert runner.find("apa-toy", "laptop")[1] == "data/results"


def test_a_finished_result_has_no_parts_of_cases_that_were_not_in_it(monkeypatch):
    monkeypatch.setattr(unfinished, "get", lambda name: TUNED)
    path = run(TUNED, "laptop")
    result, found = read(path), unfinished._of_runs("apa-toy", "laptop")
    assert {part["job"]["stage"] for part in found.values()} == {"tuning", "evaluation"}
    assert unfinished._holds(result, found)
    for stage in ("tuning", "evaluation"):
        other = next(part for part in found.values() if part["job"]["stage"] == stage)
        other = other | {"job": other["job"] | {"case": {"name": "another"}}}
        assert not unfinished._holds(result, found | {"another": other})
