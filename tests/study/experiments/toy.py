"""A small experiment that trains: a tuned network with dropout, noise and a watcher, in a second or less."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from companion.study.datasets import Part
from companion.study.experiments import Experiment, Job, Row
from companion.study.training import evaluate, train


class Watcher:
    """Keeps the accuracy after every epoch, and can go on after an interruption."""

    def __init__(self, model: nn.Module, data: Part) -> None:
        self.model, self.data, self.accuracies = model, data, []

    def __call__(self, epoch: int) -> None:
        self.accuracies.append(evaluate(self.model, self.data).accuracy)

    def state_dict(self) -> dict[str, Any]:
        return {"accuracies": self.accuracies}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.accuracies = state["accuracies"]


def train_step(batch: torch.Tensor) -> None:
    """Called with every batch of every training; tests put something else in its place."""


def begin_to_measure(job: Job) -> None:
    """Called after every training that is measured; tests put something else in its place."""


def fit(job: Job) -> tuple[nn.Module, Watcher, list[float]]:
    torch.manual_seed(job.seed)
    targets = torch.arange(90) % 3
    data = Part(3 * torch.eye(3)[targets] + torch.randn(90, 3), targets)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(job.case["dropout"]), nn.Linear(8, 3))
    watcher = Watcher(model, data)

    def noisy(inputs: torch.Tensor) -> torch.Tensor:
        train_step(inputs)
        return inputs + 0.1 * torch.randn_like(inputs)

    options = {"epochs": job.settings["epochs"], "batch_size": 16, "augment": noisy, "optimiser": "adam"}
    losses = train(model, data, learning_rate=job.rate, seed=job.seed, after_epoch=watcher, **options)
    return model, watcher, losses


def validate(job: Job) -> float:
    return -fit(job)[2][-1]


def measure(job: Job) -> list[Row]:
    """Two trainings, and a number that was drawn after them."""
    rows = []
    for part in ("first", "second"):
        model, watcher, losses = fit(job)
        weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
        found = {"weights": weights.tolist(), "losses": losses, "accuracies": watcher.accuracies}
        begin_to_measure(job)
        rows.append({"part": part, "loss": losses[-1], "drawn": torch.rand(()).item(), **found})
    return rows


LAPTOP = {"seeds": 2, "epochs": 20, "learning_rates": [0.003, 0.01, 0.03], "tuning_seeds": [1000], "device": "cpu"}
TOY = Experiment(
    name="apa-toy",
    mechanism="apa",
    description="A toy that trains.",
    presets={
        "smoke": {**LAPTOP, "seeds": 1, "epochs": 1, "tuning_seeds": []},
        "laptop": LAPTOP,
        "full": {**LAPTOP, "epochs": 21},
    },
    cases=lambda settings: [{"dropout": rate} for rate in (0.1, 0.5)],
    measure=measure,
    validate=validate,
    columns=("loss",),
)
