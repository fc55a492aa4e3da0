"""Runs that are stopped inside a training, or after it: nothing is lost, nothing is counted twice."""

import json
import multiprocessing
import os
import random
import signal
import threading
import time
from functools import partial

import pytest
import tqdm

from companion.study import training
from companion.study.experiments import provenance, run
from tests.study.experiments import toy
from tests.study.experiments.toy import TOY

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
    """What the child does: it notes every step, and says when it trains, until it is killed or has a result."""
    os.environ |= {"COMPANION_RUNS": str(place), "CI": "1"}
    training.checkpoints = partial(training.checkpoints, every=0.02)

    def step(batch):
        with steps.open("ab") as file:
            file.write(b".")
        begun.send(True)
        time.sleep(0.002)

    toy.train_step = step
    tqdm.tqdm.set_lock(threading.RLock())  # its own would be a semaphore of the system, and outlive the child
    run(TOY, "laptop", resume=True)


def killed_inside_trainings(place, kills, seconds):
    """Run and kill so many times, at moments that are drawn, and once to the end; return how many steps were taken."""
    forks = multiprocessing.get_context("forkserver")
    # what a child would import, so that it trains at once
    forks.set_forkserver_preload(["torch._dynamo", "fastjsonschema", "tqdm", "tests.study.experiments.toy"])
    drawn, steps = random.Random(0), place / "steps"
    place.mkdir()
    for _ in range(kills):
        begun, theirs = forks.Pipe(duplex=False)
        child = forks.Process(target=work, args=(place, steps, theirs))
        child.start()
        assert begun.poll(120)
        time.sleep(drawn.uniform(0, seconds))
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL, "it had come to its end before"
    begun, theirs = forks.Pipe(duplex=False)
    child = forks.Process(target=work, args=(place, steps, theirs))
    child.start()
    while child.is_alive():
        if begun.poll(0.1):
            begun.recv()
    assert child.exitcode == 0
    return steps.stat().st_size


# Of a tuned training, and of an evaluated one; of the smoke preset's.
STEPS, SMOKE = 20 * 6, 2 * 3 * 2 * 6


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_run_that_is_killed_inside_its_trainings_gives_the_same_bits(tmp_path):
    whole = outcome(run(TOY, "laptop"))
    steps = killed_inside_trainings(tmp_path / "killed", KILLS, 0.3)
    found = tmp_path / "killed" / "apa-toy-laptop.json"
    assert outcome(found) == whole
    # A kill costs what came after the last checkpoint, and no training is begun again.
    needed = STEPS * (len(whole["tuning"]) + len(whole["rows"])) + SMOKE
    assert needed <= steps < needed + 20 * KILLS
    assert not folders(found.with_suffix(""))


def folders(place):
    return [path for path in place.iterdir() if path.is_dir()]


def counted(monkeypatch):
    """A list that grows by one with every step of a training."""
    steps = []
    monkeypatch.setattr(toy, "train_step", lambda batch: steps.append(len(batch)))
    return steps


def no_memory(job):
    if job.settings["epochs"] > 1:  # not of the smoke preset, which comes first
        raise MemoryError("out of memory")


@pytest.fixture
def failed(monkeypatch):
    """A run of which the first measurement failed; and a list that grows with every step taken from then on."""
    with monkeypatch.context() as fault:
        fault.setattr(toy, "begin_to_measure", no_memory)
        with pytest.raises(MemoryError):
            run(TOY, "laptop")
    return counted(monkeypatch)


def test_a_measurement_that_fails_is_repeated_alone(runs, failed, monkeypatch, tmp_path):
    resumed = outcome(run(TOY, "laptop", seeds=1, resume=True))
    # the one training that came before the failure is not repeated, three others follow
    assert len(failed) == 3 * STEPS
    assert not folders(runs / "apa-toy-laptop")
    monkeypatch.setenv("COMPANION_RUNS", str(tmp_path / "elsewhere"))
    assert resumed == outcome(run(TOY, "laptop", seeds=1))


def test_without_resume_nothing_goes_on_from_an_earlier_training(failed):
    result = outcome(run(TOY, "laptop", seeds=1))
    assert len(failed) == STEPS * (len(result["tuning"]) + len(result["rows"]))


def test_another_machine_does_not_go_on_with_a_training(runs, failed, monkeypatch):
    other = {**provenance.machine({}), "hardware": {"cpu": "Another", "gpu": None}}
    monkeypatch.setattr(provenance, "machine", lambda settings: other)
    result = outcome(run(TOY, "laptop", seeds=1, resume=True))
    assert len(failed) == STEPS * len(result["rows"])
    assert not folders(runs / "apa-toy-laptop")


def test_what_a_run_left_between_a_part_and_its_trainings_is_removed(monkeypatch):
    path = run(TOY, "laptop", seeds=1)
    part = next(path.with_suffix("").glob("*.json"))
    (part.with_suffix("") / "machine").mkdir(parents=True)
    steps = counted(monkeypatch)
    run(TOY, "laptop", seeds=1, resume=True)
    assert not folders(path.with_suffix(""))
    assert steps == []


def test_the_losses_that_a_smoke_preset_hears_survive_an_interruption(monkeypatch):
    whole = outcome(run(TOY, "smoke"))["rows"]
    monkeypatch.setattr(training, "checkpoints", partial(training.checkpoints, every=0.0))
    seen = []

    def interrupt(batch):
        seen.append(len(batch))
        if len(seen) == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(toy, "train_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(TOY, "smoke")
    assert outcome(run(TOY, "smoke", resume=True))["rows"] == whole
    assert all(len(row["first_losses"]) == 2 for row in whole)
