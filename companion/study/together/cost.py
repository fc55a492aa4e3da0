"""``together-cost``: what a neuron costs in an arena: time of a step, memory, parameters, FLOPs.

The arena is the convolutional one, and in the preset "perceptron" that of three layers, home of the learned functions.
A step is the arena's: forward, loss, backward, the optimiser; in eager, or compiled as one graph. GELU's network takes
one by turns with that of the neuron, so that a machine that slows down slows both. ``ms`` is the median, ``to_gelu``
the median quotient of two that follow each other. ``memory`` is what a step keeps for its backward pass, in bytes,
parameters left out. On a GPU ``peak`` is the most that was allocated during a step.

Images are noise: time does not depend on what they show. Nothing is tuned, and a seed is one more measurement of all.
Times belong to one quiet machine: run it alone, with ``--jobs 1``. It takes twenty
minutes, most of them to compile.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from companion import count
from companion.study.experiments import Case, Experiment, Job, Row, grid
from companion.study.models import Standardise
from companion.study.together import mlp, neurons
from companion.study.together.network import front
from companion.study.together.neurons import loss_of
from companion.study.together.sizes import as_wide_as
from companion.weight_decay import parameter_groups

__all__ = ["EXPERIMENT", "MODES", "kept"]

MODES = ("eager", "compiled")
"""By the name that rows have."""

_CLASSES = 10
_REFERENCE = "gelu"


class _Step:
    """A training step of a network on a batch of noise."""

    def __init__(self, neuron: str, settings: Mapping[str, Any], mode: str) -> None:
        dense, device = settings.get("network") == "perceptron", settings["device"]
        shape = (1, 28, 28) if dense else (3, 32, 32)
        build = mlp.build if dense else neurons.build
        generator = torch.Generator().manual_seed(0)
        images = torch.rand((settings["batch_size"], *shape), generator=generator)
        self.targets = (torch.arange(len(images)) % _CLASSES).to(device)
        first = Standardise(images.mean(), images.std()) if dense else front(images)
        widths = as_wide_as(
            neuron, settings["widths"], lambda name, widths: build(name, first, shape, _CLASSES, widths), _REFERENCE
        )
        torch.manual_seed(0)
        model = build(neuron, first, shape, _CLASSES, widths).to(device)
        self.model = model.to(memory_format=torch.channels_last)
        self.images = images.to(device, memory_format=torch.channels_last)
        self.of = loss_of(self.model, 0.0 if dense else 0.2)
        self.mixed = settings["precision"] == "bfloat16"
        # at this rate it learns nothing, and nothing becomes too large
        groups = parameter_groups(model, 5e-4, "kernels")
        self.rule: torch.optim.Optimizer = (
            torch.optim.AdamW(groups, lr=1e-6)
            if dense
            else torch.optim.SGD(groups, lr=1e-6, momentum=0.9, nesterov=True)
        )
        self.forward: Callable[[Tensor], Tensor] = self.model
        if mode == "compiled":
            self.forward = torch.compile(self.model, fullgraph=True, dynamic=False, options={"compile_threads": 1})

    def loss(self) -> Tensor:
        """Forward."""
        with torch.autocast(self.images.device.type, torch.bfloat16, enabled=self.mixed):
            logits = self.forward(self.images)
        return self.of(logits.float(), self.targets)

    def __call__(self) -> None:
        """Forward, backward, and the weights move."""
        loss = self.loss()
        self.rule.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
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
    cost = count(own.model, own.images.shape[1:])
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
