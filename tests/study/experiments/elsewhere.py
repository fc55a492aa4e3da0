"""What workers of another process import: the toy, of which one worker does not come to the end."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from companion.study import training
from companion.study.experiments import Experiment, Job, Row
from tests.study.experiments import toy

#: A worker that has taken so many steps may be killed: in the midst of its first training.
STEPS = 7
#: Of a training, there are two in a job.
EPOCHS, BATCHES = 2, 6


def measure(job: Job) -> list[Row]:
    """As the toy does it, with a checkpoint after every step; each step adds a byte to the file ``steps``.

    The first to find the file ``kill`` kills itself, and where ``fail`` lies it fails.
    """
    place, taken = Path(job.settings["place"]), []
    if (place / "fail").exists():
        raise MemoryError("out of memory")
    kept = training._CHECKPOINTS.get()
    assert kept is not None
    kept.every = 0.0

    def step(batch: Any) -> None:
        taken.append(len(batch))
        with (place / "steps").open("ab") as file:
            file.write(b".")
        if len(taken) == STEPS:
            _end_if_told(place)

    toy.train_step = step
    return toy.measure(job)


def _end_if_told(place: Path) -> None:
    try:
        (place / "kill").unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def experiment(place: Path) -> Experiment:
    """Four jobs, each of which trains twice."""
    smoke = {"seeds": 2, "epochs": EPOCHS, "learning_rates": [0.01], "place": str(place)}
    return Experiment(
        name="apa-toy",
        mechanism="apa",
        description="A toy of which a worker is killed.",
        presets={"smoke": smoke},
        cases=toy.TOY.cases,
        measure=measure,
        columns=("loss",),
    )
