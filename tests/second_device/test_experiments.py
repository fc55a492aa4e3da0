"""The full presets, which want a GPU, on the second device: two steps of training, and all that is measured.

Once with numbers, few of them: what CUDA refuses is refused. And once without: then networks, batches and test parts
are as large as the presets have them, and the device says how much memory a GPU would have needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from companion import rooms
from companion.apa.study import experiments as apa
from companion.dnrt.study import experiments as dnrt
from companion.layeract.study import experiments as layeract
from companion.multi_argument.study import experiments as multi_argument
from companion.study import datasets
from companion.study.corruptions import CORRUPTIONS, SEVERITIES
from companion.study.datasets import Part, Splits
from companion.study.experiments import Case, Experiment, Job, classification, experiments
from companion.study.models import CifarResNet, factory
from companion.study.together import cost, gpt, mlp
from companion.study.together import experiments as arenas
from companion.study.together import measures as together
from companion.study.together.corruptions import CIFAR_C
from companion.study.together.text import syllables
from tests.second_device import device

FULL = {each.name: each for each in experiments() if "full" in each.presets}

SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "cifar100": (3, 32, 32), "imagenette": (3, 80, 80)}
CLASSES = {name: 100 if name == "cifar100" else 10 for name in SHAPES}
TEST_PARTS = {"mnist": 10_000, "cifar10": 10_000, "cifar100": 10_000, "imagenette": 3925, "sgemm": 36_240}

#: What a measurement may have alive on the device: half of what a T4 has, Colab's smallest GPU.
BUDGET = 8 * 2**30


def invent(patch: pytest.MonkeyPatch, train: int, test: dict[str, int], classes: dict[str, int]) -> None:
    """Put data of the right shapes in the place of real ones: so many to train with, half as many to validate."""

    def load(name: str, seed: int = 0, **options: object) -> Splits:
        def part(count: int) -> Part:
            images = torch.rand(1, *SHAPES[name], generator=torch.Generator().manual_seed(0))
            # of many only their size counts
            images = (
                images * torch.linspace(0.5, 1, count).view(-1, 1, 1, 1)
                if count < 100
                else images.expand(count, -1, -1, -1)
            )
            return Part(images, torch.arange(count) % classes[name])

        return Splits(part(train), part(train // 2), part(test[name]), classes[name])

    def sgemm(seed: int = 0) -> Splits:
        def part(count: int) -> Part:
            numbers = torch.randn(count, 15, generator=torch.Generator().manual_seed(0))
            return Part(numbers[:, :14], numbers[:, 14])

        return Splits(part(train), part(train // 2), part(test["sgemm"]), 0)

    patch.setattr(datasets, "load", load)
    patch.setattr(datasets, "sgemm", sgemm)
    # as long as the plays, where their length counts
    patch.setitem(gpt._TEXTS, "shakespeare", lambda: syllables(405_000 if train > 100 else 400))


def jobs(experiment: Experiment, cases: Callable[[list[Case]], list[Case]], **changes: object) -> list[Job]:
    """The full preset on the second device, each epoch of two steps, in eager."""
    settings: dict[str, Any] = {**experiment.presets["full"], "device": device.NAME, "epochs": 1, "map_steps": 2}
    if "context" in settings:  # a text's epoch is as long as one asks for
        settings["characters"] = 2 * settings["context"] * settings["batch_size"]
    _, rates, _ = (settings.pop(key, [None]) for key in ("seeds", "learning_rates", "tuning_seeds"))
    # for this device nobody compiles
    once = {"compiled": False, "modes": ["eager"], "repeats": 1}
    settings |= {key: value for key, value in once.items() if key in settings}
    settings |= changes
    return [
        Job(experiment.name, "evaluation", case, settings, 0, rates[0]) for case in cases(experiment.cases(settings))
    ]


def different(cases: list[Case]) -> list[Case]:
    """Enough cases that each kind of what is compared is among them: words differ, numbers differ only in size."""
    seen: set[tuple[str, ...]] = set()
    kept = []
    for case in cases:
        new = {(key, _kind(key, value)) for key, value in case.items()}
        if not new <= seen:
            kept.append(case)
            seen |= new
    return kept


def _kind(key: str, value: object) -> str:
    if key == "network":  # a family of them, without their depths
        return re.sub(r"\d+", "", str(value))
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def looked_into(cases: list[Case]) -> list[Case]:
    """The last case where what is measured depends on the case, otherwise the first."""
    return cases[-1:] if cases[0].keys() & {"response", "neuron", "gate"} else cases[:1]


def every(cases: list[Case]) -> list[Case]:
    """Nothing is left out."""
    return cases


def measure(experiment: Experiment, jobs: list[Job]) -> None:
    """An error names the case; what comes back is numbers, not tensors."""
    for job in jobs:
        try:
            assert json.loads(json.dumps(experiment.measure(job)))
        except Exception as error:
            error.add_note(f"{job.experiment}: {job.case}")
            raise


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks take two steps; of what is added to images, on the CPU, there is one of a kind.

    Steps are taken and not timed, and nobody asks at which addresses tensors lie.
    """
    attack = multi_argument.projected_gradient
    monkeypatch.setattr(layeract, "CORRUPTIONS", {name: CORRUPTIONS[name] for name in ("gaussian_1", "blur")})
    monkeypatch.setattr(multi_argument, "SEVERITIES", {kind: each[:1] for kind, each in SEVERITIES.items()})

    def two_steps(*args: Any, steps: int = 2, **kwargs: Any) -> torch.Tensor:
        return attack(*args, steps=min(steps, 2), **kwargs)

    monkeypatch.setattr(multi_argument, "projected_gradient", two_steps)
    monkeypatch.setattr(multi_argument, "_STEPS", (0, 1, 2))
    for name in ("DEVIATIONS", "MEANS"):
        monkeypatch.setattr(together, name, getattr(together, name)[:1])
    monkeypatch.setattr(together, "CIFAR_C", {name: CIFAR_C[name] for name in ("gaussian_noise", "contrast")})
    monkeypatch.setattr(together, "_STEPS", 2)

    def taken(step: Callable[[], None]) -> float:
        step()
        return 1.0

    monkeypatch.setattr(cost, "_milliseconds", taken)
    monkeypatch.setattr(cost, "kept", lambda model, loss: int(loss().isfinite()))


@pytest.fixture
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few layers, and narrow ones, stand for networks of many: no layer is on another device than those like it."""
    for name in factory._RESNETS:
        version = "v2" if "_v2" in name else "v1"
        monkeypatch.setitem(factory._RESNETS, name, partial(CifarResNet, 1, width=0.5, version=version))
    for name in factory._VGGS:
        monkeypatch.setitem(factory._VGGS, name, factory._VGGS["vgg8_8"])
    monkeypatch.setitem(factory._VITS, "vit_tiny", factory._VITS["vit_64x4"])


@pytest.mark.parametrize("name", FULL)
def test_what_is_measured_does_not_mix_devices(
    name: str, every_case: bool, short: None, shallow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    invent(monkeypatch, 4, dict.fromkeys(TEST_PARTS, 6), dict.fromkeys(SHAPES, 3))
    smaller: dict[str, Any] = {"hidden": (4, 6, 6, 6), "attacked": 3}
    if max(FULL[name].presets["full"].get("widths", [0])) > 128:
        smaller["widths"] = (16, 32, 32)
    if "context" in FULL[name].presets["full"]:
        smaller |= {"context": 12, "width": 32, "heads": 4, "blocks": 2, "characters": 48}
    elif "depth" in FULL[name].presets["full"]:
        smaller |= {"width": 32, "heads": 2, "depth": 2}
    experiment = FULL[name]
    chosen = jobs(experiment, every) if every_case else jobs(experiment, different, **smaller)
    measure(experiment, [replace(job, settings={**job.settings, "batch_size": 2}) for job in chosen])


def test_a_learning_rate_is_tuned_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    invent(monkeypatch, 4, dict.fromkeys(TEST_PARTS, 6), dict.fromkeys(SHAPES, 3))
    for name in ("apa-attention", "multi-argument-mnist", "dnrt-cifar10"):
        job = jobs(FULL[name], different, batch_size=2)[0]
        validate = FULL[name].validate
        assert validate is not None
        assert 0 <= validate(job) <= 1


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is trained: what is watched after an epoch is looked at once, and all the rest is measuring.

    What takes the CPU long, and computes there whatever it is given, is left out.
    """
    monkeypatch.setattr(apa, "ks_distance", lambda *_: 0.0)
    monkeypatch.setattr(dnrt, "within_class_share", lambda *_: 0.0)
    monkeypatch.setattr(dnrt, "sparsity", lambda _: torch.zeros(1))

    def no_training(
        model: nn.Module, data: Part, *, after_epoch: Callable[[int], object] | None = None, **settings: object
    ) -> list[float]:
        model.train()
        if after_epoch is not None:
            after_epoch(1)
        return [0.0]

    for module in (classification, arenas, gpt, mlp, *rooms.studies("experiments").values()):
        if hasattr(module, "train"):
            monkeypatch.setattr(module, "train", no_training)


def alike(name: str) -> tuple[object, ...]:
    """What decides how much memory a preset wants: what it measures of which networks, and the size of its images."""
    settings, measure = FULL[name].presets["full"], FULL[name].measure
    of = tuple(str(settings.get(key)) for key in ("network", "networks", "widths", "width"))
    return getattr(measure, "func", measure), *of, SHAPES.get(settings.get("dataset", ""))


@pytest.mark.parametrize("name", FULL)
def test_what_is_measured_fits_into_the_memory_of_a_gpu(
    name: str, every_case: bool, short: None, untrained: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not every_case and (first := next(each for each in FULL if alike(each) == alike(name))) != name:
        pytest.skip(f"the same networks as {first}")
    invent(monkeypatch, 2000, TEST_PARTS, CLASSES)
    for job in jobs(FULL[name], different if every_case else looked_into):
        device.Memory.restart()
        with device.without_numbers():
            measure(FULL[name], [job])
        peak = device.Memory.restart()
        print(f"{name}: {peak / 2**30:.2f} GiB {job.case}")
        assert peak <= BUDGET, f"{job.case}: {peak / 2**30:.1f} GiB on the device, allowed are {BUDGET / 2**30:.0f}"
