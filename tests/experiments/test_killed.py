"""Runs that are stopped inside a training, or after it: nothing is lost, nothing is counted twice."""

import json
import multiprocessing
import os
import random
import signal
import time
from functools import partial

import pytest
import torch

from companion import training
from companion.experiments import Experiment, run, runner
from tests.experiments import toy
from tests.experiments.toy import TOY

# So many times a process is killed. Fifty take a minute on a quiet core.
KILLS = 12


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPANION_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CI", "1")
    return tmp_path / "runs"


def outcome(path):
    result = json.loads(path.read_text())
    del result["provenance"]["duration_seconds"]
    return result


def work(place, steps, begun):
    """What the child does: it says when it trains, and how often, until it is killed or has a result."""
    os.environ |= {"COMPANION_RUNS": str(place), "CI": "1"}
    training.checkpoints = partial(training.checkpoints, every=0.05)

    def heard(batch):
        with steps.get_lock():
            steps.value += 1
        begun.set()
        time.sleep(0.002)

    toy.steps_heard = heard
    run(TOY, "laptop", resume=True)


def killed_inside_trainings(place, kills, seconds):
    """Run and kill so many times, at moments that are drawn, and once to the end; return how many steps were taken."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["companion.experiments", "tests.experiments.toy"])
    drawn, killed = random.Random(0), 0
    steps = forks.Value("l", 0)
    while True:
        begun = forks.Event()
        child = forks.Process(target=work, args=(place, steps, begun))
        child.start()
        assert begun.wait(120)
        if killed < kills:
            time.sleep(drawn.uniform(0, seconds))
            os.kill(child.pid, signal.SIGKILL)
        child.join(300)
        if child.exitcode == 0:
            return killed, steps.value
        assert child.exitcode == -signal.SIGKILL
        killed += 1


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_run_that_is_killed_inside_its_trainings_gives_the_same_bits(tmp_path):
    whole = outcome(run(TOY, "laptop"))
    trainings = len(whole["tuning"]) + 2 * 2 * 2
    needed = trainings * 20 * 6
    killed, steps = killed_inside_trainings(tmp_path / "killed", KILLS, 0.5)
    assert killed == KILLS
    found = tmp_path / "killed" / "apa-toy-laptop.json"
    again = outcome(found)
    assert again == whole
    # A kill costs what came after the last checkpoint, and no training is begun again.
    print(f"{killed} kills, {needed} steps needed, {steps} taken")
    assert steps < needed + smoke_steps() + killed * 60
    assert not [path for path in found.with_suffix("").iterdir() if path.is_dir()]


def smoke_steps():
    return 2 * 3 * 2 * 6


def counted(monkeypatch):
    """A list that grows by one with every step of a training."""
    steps = []
    monkeypatch.setattr(toy, "steps_heard", lambda batch: steps.append(len(batch)))
    return steps


def fails_to_measure(job):
    toy.measure(job)
    raise MemoryError("out of memory")


def test_a_measurement_that_fails_is_repeated_alone(runs, monkeypatch):
    whole = outcome(run(TOY, "laptop"))
    steps = counted(monkeypatch)
    with pytest.raises(MemoryError):
        run(Experiment(**{**vars(TOY), "measure": fails_to_measure}), "laptop")
    assert steps
    # the same home, so the same code: only the measurement is other
    steps.clear()
    assert outcome(run(TOY, "laptop", seeds=1, resume=True))["rows"] == [r for r in whole["rows"] if r["seed"] == 0]
    # of the two cases the one that had failed is not trained again
    assert len(steps) == 2 * 20 * 6
    assert not [path for path in (runs / "apa-toy-laptop").iterdir() if path.is_dir()]


def test_without_resume_nothing_goes_on_from_an_earlier_training(monkeypatch):
    with pytest.raises(MemoryError):
        run(Experiment(**{**vars(TOY), "measure": fails_to_measure}), "laptop")
    steps = counted(monkeypatch)
    result = outcome(run(TOY, "laptop"))
    assert len(steps) == 20 * 6 * (len(result["tuning"]) + 2 * len(result["rows"]) // 2)


def test_another_machine_does_not_go_on_with_a_training(runs, monkeypatch):
    with pytest.raises(MemoryError):
        run(Experiment(**{**vars(TOY), "measure": fails_to_measure}), "laptop")
    other = {**runner.provenance.machine({}), "hardware": {"cpu": "Another", "gpu": None}}
    monkeypatch.setattr(runner.provenance, "machine", lambda settings: other)
    steps = counted(monkeypatch)
    result = outcome(run(TOY, "laptop", resume=True))
    assert len(steps) == 20 * 6 * len(result["rows"])
    assert not [path for path in (runs / "apa-toy-laptop").iterdir() if path.is_dir()]


def test_what_a_run_left_between_a_part_and_its_trainings_is_removed(runs, monkeypatch):
    path = run(TOY, "laptop")
    part = next(path.with_suffix("").glob("*.json"))
    (part.with_suffix("") / "machine").mkdir(parents=True)
    steps = counted(monkeypatch)
    run(TOY, "laptop", resume=True)
    assert not part.with_suffix("").exists()
    assert steps == []


def test_the_losses_that_a_smoke_preset_hears_survive_an_interruption(monkeypatch):
    whole = outcome(run(TOY, "smoke"))["rows"]
    monkeypatch.setattr(training, "checkpoints", partial(training.checkpoints, every=0.0))
    seen = []

    def interrupt(batch):
        seen.append(len(batch))
        if len(seen) == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(toy, "steps_heard", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(TOY, "smoke")
    assert outcome(run(TOY, "smoke", resume=True))["rows"] == whole
    assert all(len(row["first_losses"]) == 2 for row in whole)
