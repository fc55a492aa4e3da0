"""Runs on a Ray cluster of two workers on this machine: killed, refused, failed."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from companion.study.experiments import run, runner
from companion.study.experiments.__main__ import main
from tests.study.experiments import elsewhere, toy
from tests.study.experiments.elsewhere import BATCHES, EPOCHS, experiment

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray, which the extra scale brings: no cluster was tried"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of one with two workers; nothing of it is left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")  # which would go to its makers
        folder = tempfile.mkdtemp(prefix="ray-")  # a short path: Ray's sockets lie below it
        Path(folder, "ray").mkdir()  # where it writes its address, which is not where its sockets are
        patch.setenv("RAY_TMPDIR", folder)
        # jsonschema imports it if it is there, and each of Ray's processes would wait two seconds for a thing unused
        Path(folder, "rfc3987_syntax.py").write_text("raise ImportError\n")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH")))))
        from ray.cluster_utils import Cluster

        without = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        node = {"num_cpus": 2, "object_store_memory": 80 * 2**20, "temp_dir": folder}
        begun = Cluster(initialize_head=True, head_node_args=node | without)
        yield begun.address
        begun.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the workers find what they are to do, and say what they did."""
    monkeypatch.setenv("CI", "1")
    monkeypatch.setattr(toy, "train_step", toy.train_step)  # as before after a run in this process
    return tmp_path


def rows(place: Path, monkeypatch: pytest.MonkeyPatch, folder: str, **options: Any) -> tuple[list[Any], int]:
    """The rows of a run that goes to a folder of its own, and how many steps it took."""
    monkeypatch.setenv("COMPANION_RUNS", str(place / folder))
    steps = place / "steps"
    steps.unlink(missing_ok=True)
    result = json.loads(run(experiment(place), "smoke", **options).read_text())
    left = [path for path in (place / folder / "apa-toy-smoke").iterdir() if path.is_dir()]
    assert not left, "nobody needs the checkpoints any more"
    return result["rows"], steps.stat().st_size


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cluster_of_which_a_worker_is_killed_in_its_training_gives_what_one_process_gives(
    cluster: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serial, needed = rows(place, monkeypatch, "serial")
    assert needed == 2 * 2 * 2 * EPOCHS * BATCHES
    (place / "kill").touch()
    found, steps = rows(place, monkeypatch, "ray", ray=cluster)
    assert not (place / "kill").exists()
    assert found == serial
    # the step at which it was killed is taken again, and no other
    assert steps == needed + 1


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_fails_on_a_worker_fails_here_and_who_is_killed_again_and_again_is_given_up(
    cluster: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "fail").touch()
    with pytest.raises(MemoryError, match="out of memory"):
        rows(place, monkeypatch, "failed", ray=cluster)
    (place / "fail").unlink()
    monkeypatch.setenv("RAY_TASK_MAX_RETRIES", "0")
    (place / "kill").touch()
    with pytest.raises(ChildProcessError, match=r"given up \(WorkerCrashedError.* the finished jobs are kept"):
        rows(place, monkeypatch, "killed", ray=cluster)


def test_a_worker_that_does_not_see_the_folder_of_runs_computes_and_leaves_nothing(place: Path) -> None:
    job = runner._Session(experiment(place), "smoke", {"epochs": 1, "place": str(place)}, place, "", False, None).job(
        "evaluation", {"dropout": 0.1}, 0, 0.01
    )
    computed = runner._compute(elsewhere.measure, job, place / "absent" / "part.json")
    assert [row["part"] for row in computed.outcome] == ["first", "second"]
    assert not (place / "absent").exists()


def test_times_are_not_measured_on_several_machines(place: Path) -> None:
    timed = dataclasses.replace(experiment(place), timed=True)
    with pytest.raises(ValueError, match="ray is 'auto'; apa-toy measures times"):
        run(timed, "smoke", ray="auto")


def test_without_ray_the_extra_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMPANION_RUNS", str(place / "runs"))
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else find(name))
    assert main(["run", "apa-digits", "--preset", "smoke", "--ray", "auto"]) == 2
    assert 'ray is missing: pip install "rethinking-the-neuron[scale]"' in capsys.readouterr().err
    assert not (place / "runs").exists()
