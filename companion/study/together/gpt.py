"""``together-gpt``: neurons in one small transformer that reads Shakespeare character by character.

What is measured is a speed of learning, and called so: how many bits a character costs on text that was not seen, after
two million characters. A network that learns for longer is better, and neurons that learn faster need not end better;
the preset "full" asks for that, with the best of many validations.

*The network*: blocks of causal attention and of a perceptron, each normalised before and added to what came in, learned
positions. The neuron is the perceptrons' activation, at each character by itself.

*The recipe*: AdamW with a decay of 0.1 on matrices, gradients clipped at norm 1, a warm-up over a tenth and a cosine.
Each seed draws its own pieces of the text. What is not ours in it is GPT-2's: weights begin normal with a deviation of
0.02, what leads back to the stream with less.

*LayerAct* is per character (``dims=-1``), and cannot be otherwise. As published it normalises over all but the first
dimension: over all characters of a piece, and those to come would reach those before.

*Equal.* The perceptrons' hidden units are as many as give GELU's parameters, within one per cent; rates and seeds as in
the other arenas (`companion.study.together.experiments`), in trainings of a third of the characters. AGLU begins as its
paper starts it in GPT.

*What this arena does not hold* `REFUSED` says, with the reasons.

*Cost* of "laptop" on one core: a training takes 3 minutes with GELU and up to 3½ with the others; all of it, tuning and
24 seeds, 13 hours.

*Power*: `SMALLEST_DIFFERENCE` was written first. The preset "pilot" is five seeds of GELU and ReLU; its spread asks for
24 seeds among the four neurons that were run first. Theirs, of 24 seeds and so better known, asks for 21 among all ten
(SwiGLU and z₁·σ(z₂), which came later, vary more: of them 24 seeds find 0.023 and 0.040).

*Precision*: float32 in all rows of "laptop"; bfloat16 under autocast in all rows of "full", for a GPU.

References
----------
Radford et al. (2019), Language models are unsupervised multitask learners. Karpathy (2022), nanoGPT.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion import AGLU, count
from companion.study.datasets import Part
from companion.study.experiments import Case, Experiment, Job, Row, grid
from companion.study.experiments.classification import settings_of
from companion.study.together import neurons
from companion.study.together.measures import learned
from companion.study.together.neurons import Neuron, composed, halves, named
from companion.study.together.sizes import as_wide_as
from companion.study.together.text import Text, random_windows, shakespeare, successive_windows, syllables
from companion.study.training import predict, train, warm_up

__all__ = ["EXPERIMENT", "GPT", "NEURONS", "REFUSED", "SMALLEST_DIFFERENCE", "SwiGLU", "build"]

SMALLEST_DIFFERENCE = 0.02
"""Bits a character, one per cent of what such a network needs. Smaller ones do not matter."""


class SwiGLU(nn.Module):
    """z₁·SiLU(z₂) of two halves of the last dimension.

    References
    ----------
    Shazeer (2020), GLU variants improve transformer.

    Examples
    --------
    >>> SwiGLU()(torch.tensor([[1.0, 2.0, 0.0, 100.0]]))
    tensor([[  0., 200.]])
    """

    def forward(self, z: Tensor) -> Tensor:
        """Return the gated half."""
        value, gate = z.chunk(2, -1)
        return value * F.silu(gate)


NEURONS: dict[str, Neuron] = {
    **{name: neurons.NEURONS[name] for name in ("gelu", "relu", "silu", "prelu")},
    "aglu": Neuron("AGLU", lambda: lambda units, dim: AGLU()),
    "la_silu": composed("la_silu", "LA-SiLU, per character"),
    "la_hardsilu": composed("la_hardsilu", "LA-HardSiLU, per character"),
    "raa": neurons.NEURONS["raa"],
    "glu": halves("z₁·σ(z₂)", nn.GLU),
    "swiglu": halves("SwiGLU, z₁·SiLU(z₂)", SwiGLU),
}
"""By the name that settings and rows have."""

REFUSED = {
    "arr": "ARR holds what a layer gives to the mean of its class, and a character has no class but the next one",
    "dnrt": "DNRT is RAA, which is here, and ARR, which holds a layer to the mean of a class that no character has",
    "dac": "a bias for each of its weights, added and activated at every character, takes twice the rest",
    "multibias": "its copies are channels of dimension 1, which here are characters",
    "two_arguments": "an inner network of 4,417 weights for every unit at every character takes five times the rest",
}
"""Neurons that this arena does not hold, and why."""


class _Block(nn.Module):
    """Attention to what came before, and a perceptron; each is normalised before and added to what came in."""

    def __init__(self, width: int, heads: int, sums: int, units: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, sums), nn.Linear(units, width)
        self.activation: nn.Module = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        # (N, L, 3·width) → three of (N, heads, L, width / heads)
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mixed(attention.transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(self.activation(self.up(self.norm2(x))))
        return out


class GPT(nn.Module):
    """A transformer that predicts the next character after each.

    Parameters
    ----------
    characters : int
        Of the alphabet.
    context : int
        L, the most characters that it sees.
    width, heads, blocks : int
        Of the stream, of each attention, and how many blocks there are.
    units : int
        Hidden units of the perceptrons.
    activation : callable
        Takes their number and returns a new module, for the last dimension.
    arity : int
        Weighted sums of a unit.

    Shape
    -----
    Input (N, L), int64; output (N, L, characters), logits.

    Examples
    --------
    >>> model = GPT(5, 8, width=6, heads=2, blocks=1, units=12, activation=lambda units: nn.GELU())
    >>> model(torch.zeros(2, 8, dtype=torch.int64)).shape
    torch.Size([2, 8, 5])
    """

    def __init__(
        self,
        characters: int,
        context: int,
        width: int,
        heads: int,
        blocks: int,
        units: int,
        activation: Callable[[int], nn.Module],
        arity: int = 1,
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(_Block(width, heads, arity * units, units) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters, bias=False)
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                back = name.endswith(("mixed", "down"))
                nn.init.normal_(module.weight, std=0.02 / (math.sqrt(2 * blocks) if back else 1))
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        # Last: what an activation draws changes no weight.
        for block in self.blocks:
            block.activation = activation(units)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        stream = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            stream = block(stream)
        logits: Tensor = self.head(self.norm(stream))
        return logits


def build(
    name: str, characters: int, settings: Mapping[str, Any], units: int, known: Mapping[str, Neuron] = NEURONS
) -> GPT:
    """Return the arena's network around a neuron.

    Parameters
    ----------
    name : str
        A key of `known`.
    characters : int
        Of the alphabet.
    settings : mapping
        "context", "width", "heads" and "blocks".
    units : int
        Hidden units of the perceptrons.
    known : mapping
        The neurons.

    Returns
    -------
    GPT
        Fresh weights from torch's global generator.

    Raises
    ------
    ValueError
        If there is no such neuron, or the arena does not hold it; then the error says why.
    """
    neuron = named(name, known, REFUSED)
    place = neuron.places()
    sizes = {key: settings[key] for key in ("context", "width", "heads", "blocks")}
    return GPT(characters, units=units, activation=lambda units: place(units, -1), arity=neuron.arity, **sizes)


Build = Callable[[str, int, Mapping[str, Any], int], GPT]


@cache
def _units(name: str, characters: int, context: int, width: int, heads: int, blocks: int, build: Build = build) -> int:
    """The hidden units with which a neuron's network has as many parameters as GELU's with four for each of width."""
    sizes = {"context": context, "width": width, "heads": heads, "blocks": blocks}
    return as_wide_as(name, (4 * width,), lambda name, widths: build(name, characters, sizes, *widths))[0]


@dataclass
class _Curve:
    """Bits a character on some pieces of text, after every epoch."""

    model: nn.Module
    parts: Mapping[str, Part]
    bits: dict[str, list[float]] = field(default_factory=dict)

    def __call__(self, epoch: int) -> None:
        for name, part in self.parts.items():
            self.bits.setdefault(name, []).append(_bits(self.model, part))

    def state_dict(self) -> dict[str, Any]:
        """Return what there is so far."""
        return {"bits": self.bits}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.bits = state["bits"]


def _bits(model: nn.Module, part: Part) -> float:
    """Mean cross-entropy of the next character, in bits."""
    return float(_loss(predict(model, part.inputs, 64), part.targets)) / math.log(2)


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


_TEXTS: dict[str, Callable[[], Text]] = {"shakespeare": shakespeare, "syllables": syllables}


def _fit(job: Job, *parts: str, build: Build = build) -> _Curve:
    """Train a network, and watch its bits on some parts of the text."""
    settings, device = settings_of(job), job.settings["device"]
    text, length = _TEXTS[settings["dataset"]](), settings["context"]
    characters = len(text.alphabet)
    sizes = [settings[key] for key in ("context", "width", "heads", "blocks")]
    units = _units(job.case["neuron"], characters, *sizes, build=build)
    torch.manual_seed(job.seed)
    model = build(job.case["neuron"], characters, settings, units).to(device)
    curve = _Curve(model, {name: successive_windows(getattr(text, name), length).to(device) for name in parts})
    train(
        model,
        random_windows(text.train, length, settings["characters"], job.seed).to(device),
        epochs=settings["epochs"],
        learning_rate=job.rate,
        batch_size=settings["batch_size"],
        weight_decay=settings["weight_decay"],
        decay="kernels",
        seed=job.seed,
        schedule=warm_up(settings["warm_up"]),
        loss=_loss,
        optimiser="adamw",
        clip=settings["clip"],
        precision=settings["precision"],
        compiled=settings["compiled"],
        after_epoch=curve,
    )
    return curve


def validate(job: Job, build: Build = build) -> float:
    """Return minus the bits on the validation text."""
    bits = _fit(job, "validation", build=build).bits["validation"]
    return -bits[_best(bits)]


def _best(bits: Sequence[float]) -> int:
    """The epoch with the fewest bits of those that have any: NaN is none."""
    return min(range(len(bits)), key=lambda epoch: (math.isnan(bits[epoch]), bits[epoch]))


def measure(job: Job, build: Build = build) -> list[Row]:
    """Return what is measured of a network trained as the job says."""
    curve = _fit(job, "validation", "test", build=build)
    validation, test = curve.bits["validation"], curve.bits["test"]
    best = _best(validation)
    # one piece, and so many characters in it
    cost = count(curve.model, curve.parts["test"].inputs[:1])
    return [
        {
            "bits": test[best],
            "bits_validation": validation[best],
            "bits_by_epoch": test,
            "bits_validation_by_epoch": validation,
            "epoch": best + 1,
            **learned(curve.model),
            "parameters": cost.parameters,
            "flops": cost.flops // job.settings["context"],
        }
    ]


def _cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(neuron=settings["competitors"])


_LAPTOP: dict[str, Any] = {
    "dataset": "shakespeare",
    "characters": 2_000_000,
    "tuning": {"characters": 667_000},
    "context": 128,
    "width": 128,
    "heads": 4,
    "blocks": 4,
    "epochs": 1,
    "batch_size": 16,
    "weight_decay": 0.1,
    "warm_up": 0.1,
    "clip": 1.0,
    "precision": "float32",
    "compiled": False,
    "device": "cpu",
    "learning_rates": [1e-3, 3e-3, 1e-2],
    "tuning_seeds": [1000],
    "seeds": 24,
    "competitors": list(NEURONS),
}
# Ten validations, and the best of them counts; tuning is a third of the epochs.
_FULL: dict[str, Any] = {
    **_LAPTOP,
    "characters": 8_000_000,
    "tuning": {"epochs": 3},
    "context": 256,
    "width": 384,
    "heads": 6,
    "blocks": 6,
    "epochs": 10,
    "batch_size": 64,
    "precision": "bfloat16",
    "compiled": True,
    "device": "cuda",
    "seeds": 8,
}
_SMOKE: dict[str, Any] = {
    **_LAPTOP,
    "dataset": "syllables",
    "characters": 1600,
    "tuning": {"characters": 800},
    "context": 16,
    "width": 32,
    "blocks": 2,
    "epochs": 2,
    "batch_size": 10,
    "learning_rates": [1e-3],
    "seeds": 2,
    "competitors": ["gelu", "prelu", "aglu", "la_silu", "raa", "swiglu"],
}

EXPERIMENT = Experiment(
    name="together-gpt",
    mechanism="together",
    description="Neurons in one small transformer of equal size on Shakespeare: bits a character, a speed of learning",
    presets={
        "smoke": _SMOKE,
        "pilot": {**_LAPTOP, "seeds": 5, "competitors": ["gelu", "relu"]},
        "laptop": _LAPTOP,
        "full": _FULL,
    },
    cases=_cases,
    validate=validate,
    measure=measure,
    columns=("bits", "bits_validation", "parameters", "flops"),
)
