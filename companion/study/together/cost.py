"""``together-cost``: what a neuron costs in an arena: time of a step, memory, parameters, FLOPs.

The arena is the convolutional one, and in the presets "perceptron", "vit" and "text" another.
A step is the arena's: forward, loss, backward, the optimiser; in eager, or compiled as one graph. GELU's network takes
one by turns with that of the neuron, so that a machine that slows down slows both. ``ms`` is the median, ``to_gelu``
the median quotient of two that follow each other. ``memory`` is what a step keeps for its backward pass, in bytes,
parameters left out. On a GPU ``peak`` is the most that was allocated during a step.

Images and texts are noise: time does not depend on what they show. Nothing is tuned, and a seed is one more measurement
of all. Times belong to one quiet machine: run it alone, with ``--jobs 1``. It takes twenty minutes, most of them to
compile.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from companion import count
from companion.study.experiments import Case, Experiment, Job, Row, grid
from companion.study.models import Standardise
from companion.study.together import gpt, mlp, neurons, vit
from companion.study.together.network import front
from companion.study.together.neurons import loss_of
from companion.study.together.sizes import as_wide_as
from companion.weight_decay import parameter_groups

__all__ = ["EXPERIMENT", "MODES", "kept"]

MODES = ("eager", "compiled")
"""By the name that rows have."""

_CLASSES = 10
_CHARACTERS = 65
_REFERENCE = "gelu"


class _Made(NamedTuple):
    """A network, a batch for it, and the answers."""

    model: nn.Module
    inputs: Tensor
    targets: Tensor


class _Arena(NamedTuple):
    """What a step of an arena is made of."""

    #: By a neuron's name and the settings.
    made: Callable[[str, Mapping[str, Any]], _Made]
    rule: Callable[[list[dict[str, Any]]], torch.optim.Optimizer]
    loss: Callable[[nn.Module], Callable[[Tensor, Tensor], Tensor]]
    clip: float | None = None


def _images(settings: Mapping[str, Any], *shape: int) -> tuple[Tensor, Tensor]:
    images = torch.rand((settings["batch_size"], *shape), generator=torch.Generator().manual_seed(0))
    return images, torch.arange(len(images)) % _CLASSES


def _by_widths(
    build: Callable[..., nn.Module], first: Callable[[Tensor], nn.Module], shape: tuple[int, int, int]
) -> Callable[[str, Mapping[str, Any]], _Made]:
    def made(neuron: str, settings: Mapping[str, Any]) -> _Made:
        images, targets = _images(settings, *shape)
        before = first(images)
        network = partial(build, front=before, shape=shape, num_classes=_CLASSES)
        widths = as_wide_as(neuron, settings["widths"], lambda name, widths: network(name, widths=widths), _REFERENCE)
        torch.manual_seed(0)
        model = network(neuron, widths=widths).to(memory_format=torch.channels_last)
        return _Made(model, images.to(memory_format=torch.channels_last), targets)

    return made


def _vit(neuron: str, settings: Mapping[str, Any]) -> _Made:
    shape = (3, 32, 32)
    images, targets = _images(settings, *shape)
    units = vit._units(neuron, shape, _CLASSES, *(settings[key] for key in ("patch", "width", "depth", "heads")))
    torch.manual_seed(0)
    return _Made(vit.build(neuron, _standardised(images), shape, _CLASSES, settings, units), images, targets)


def _text(neuron: str, settings: Mapping[str, Any]) -> _Made:
    size = (settings["batch_size"], settings["context"])
    read = torch.randint(_CHARACTERS, size, generator=torch.Generator().manual_seed(0))
    units = gpt._units(neuron, _CHARACTERS, *(settings[key] for key in ("context", "width", "heads", "blocks")))
    torch.manual_seed(0)
    return _Made(gpt.build(neuron, _CHARACTERS, settings, units), read, read.roll(-1, 1))


def _standardised(images: Tensor) -> Standardise:
    return Standardise(images.mean(), images.std())


# At these rates nothing is learned, and nothing becomes too large.
_ADAMW = partial(torch.optim.AdamW, lr=1e-6)
_ARENAS = {
    "convolutions": _Arena(
        _by_widths(neurons.build, front, (3, 32, 32)),
        partial(torch.optim.SGD, lr=1e-6, momentum=0.9, nesterov=True),
        partial(loss_of, label_smoothing=0.2),
    ),
    "perceptron": _Arena(_by_widths(mlp.build, _standardised, (1, 28, 28)), _ADAMW, loss_of),
    "vit": _Arena(_vit, _ADAMW, loss_of, clip=1.0),
    "text": _Arena(_text, _ADAMW, lambda model: gpt._loss, clip=1.0),
}


class _Step:
    """A training step of a network on a batch of noise."""

    def __init__(self, neuron: str, settings: Mapping[str, Any], mode: str) -> None:
        self.arena, device = _ARENAS[settings.get("network", "convolutions")], settings["device"]
        model, inputs, targets = self.arena.made(neuron, settings)
        self.model, self.inputs, self.targets = model.to(device), inputs.to(device), targets.to(device)
        self.of = self.arena.loss(self.model)
        self.mixed = settings["precision"] == "bfloat16"
        self.rule = self.arena.rule(parameter_groups(self.model, 5e-4, "kernels"))
        self.forward: Callable[[Tensor], Tensor] = self.model
        if mode == "compiled":
            self.forward = torch.compile(self.model, fullgraph=True, dynamic=False, options={"compile_threads": 1})

    def loss(self) -> Tensor:
        """Forward."""
        with torch.autocast(self.inputs.device.type, torch.bfloat16, enabled=self.mixed):
            logits = self.forward(self.inputs)
        return self.of(logits.float(), self.targets)

    def __call__(self) -> None:
        """Forward, backward, and the weights move."""
        loss = self.loss()
        self.rule.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.arena.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.arena.clip)
        self.rule.step()


def kept(model: nn.Module, loss: Callable[[], Tensor]) -> int:
    """Return how many bytes a forward pass keeps for the backward pass, parameters and buffers of the model left out.

    Parameters
    ----------
    model : nn.Module
        The network.
    loss : callable
        Its forward pass and the loss.

    Returns
    -------
    int
        A storage that several operators keep counts once.

    Examples
    --------
    The input of the linear layer and the sign of what ReLU gives, which is all that it gives:

    >>> model, x = nn.Sequential(nn.Linear(3, 5), nn.ReLU()), torch.ones(2, 3)
    >>> kept(model, lambda: model(x).sum())
    64
    """
    own = {held.untyped_storage().data_ptr() for held in (*model.parameters(), *model.buffers())}
    # Alive until the end: what is freed could be given to another.
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages.setdefault(storage.data_ptr(), storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss()
    return sum(storage.nbytes() for place, storage in storages.items() if place not in own)


def _milliseconds(step: _Step) -> float:
    """One step, after others that are not counted; on one thread."""
    # Here, since it looks for compilers, and says in a warning what it does not find.
    from torch.utils.benchmark import Timer

    return float(Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads()).timeit(1).median) * 1e3


def _peak(step: _Step) -> int:
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated()


def _measure(job: Job) -> list[Row]:
    settings, neuron, mode = job.settings, job.case["neuron"], job.case["mode"]
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; allowed are {', '.join(MODES)}")
    # What this process compiled before counts towards a limit.
    torch.compiler.reset()
    reference, own = (_Step(name, settings, mode) for name in (_REFERENCE, neuron))
    # Else GELU's graph would be taken for that of GELU with ARR, which differs in its hooks alone.
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):
        taken = [(_milliseconds(reference), _milliseconds(own)) for _ in range(settings["repeats"])]
    cost = count(own.model, own.inputs[:1])
    return [
        {
            "ms": statistics.median(own for _, own in taken),
            "to_gelu": statistics.median(own / reference for reference, own in taken),
            "memory": kept(own.model, own.loss),
            **({"peak": _peak(own)} if settings["device"] == "cuda" else {}),
            "parameters": cost.parameters,
            "flops": cost.flops,
        }
    ]


def _cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(mode=settings["modes"], neuron=settings["competitors"])


_LAPTOP: dict[str, Any] = {
    "widths": [32, 64, 64],
    "batch_size": 250,
    "precision": "float32",
    "device": "cpu",
    "modes": list(MODES),
    "repeats": 3,
    "seeds": 5,
    "competitors": list(neurons.NEURONS),
}


def _of(arena: Experiment) -> dict[str, Any]:
    """What decides how long a step of an arena takes, and how often it is taken here."""
    keys = ("context", "patch", "width", "depth", "blocks", "heads", "batch_size", "precision", "device", "competitors")
    laptop = arena.presets["laptop"]
    return {key: laptop[key] for key in keys if key in laptop} | {"seeds": _LAPTOP["seeds"]}


EXPERIMENT = Experiment(
    name="together-cost",
    mechanism="together",
    description="What a step of each neuron costs in an arena: time, memory, parameters, FLOPs",
    presets={
        "smoke": {**_LAPTOP, "widths": [16, 32, 32], "batch_size": 4, "modes": ["eager"], "repeats": 1, "seeds": 1},
        "laptop": _LAPTOP,
        # What the convolutional arena cannot afford in all layers, with two neurons to compare them with.
        "perceptron": {
            **_LAPTOP,
            "network": "perceptron",
            "widths": [128, 128, 128],
            "batch_size": 100,
            "repeats": 50,
            "competitors": ["gelu", "prelu", "dac", "one_argument", "two_arguments"],
        },
        # Eager alone: on the processors that we have, compiling did not pay.
        "vit": {**_of(vit.EXPERIMENT), "network": "vit", "modes": ["eager"], "repeats": 10},
        "text": {**_of(gpt.EXPERIMENT), "network": "text", "modes": ["eager"], "repeats": 10},
        "full": {
            **_LAPTOP,
            "widths": [64, 256, 256],
            "precision": "bfloat16",
            "device": "cuda",
            "repeats": 50,
        },
    },
    cases=_cases,
    measure=_measure,
    columns=("ms", "to_gelu", "memory", "parameters", "flops"),
    timed=True,
    # Times are the only numbers with a point.
    tolerance=math.inf,
)
