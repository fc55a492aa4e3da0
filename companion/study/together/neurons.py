"""The neurons that meet in the convolutional arena, each with how it enters, and the widths that make them equal.

A neuron enters in one or more of four ways. An *activation* stands in every layer, or in some. One of several arguments
has as many maps before it for each of its units. A *conversion* takes the network with ReLU and moves the activations
(DAC, multi-bias). And ARR is attached to what all activations give, averaged over the pixels.

Control neurons are torch's own, and what a neuron of two arguments is compared with: z₁·σ(z₂) and max(z₁, z₂).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion import AGLU, RAA, LAHardSiLU, LASiLU, MultiArgument, attach_arr, to_dac, to_multibias
from companion.baselines import PReLU
from companion.dnrt.attachment import AttachedARR
from companion.study.together import sizes
from companion.study.together.network import LAYERS, ArenaCNN
from companion.study.training import Loss

__all__ = ["NEURONS", "Maxout", "Neuron", "build", "equal_widths", "loss_of"]

Shape = tuple[int, int, int]


class Maxout(nn.Module):
    """max(z₁, z₂) of two halves of the channels, dimension 1.

    References
    ----------
    Goodfellow et al. (2013), Maxout networks.

    Examples
    --------
    >>> Maxout()(torch.tensor([[1.0, 2.0, 3.0, 0.0]]))
    tensor([[3., 2.]])
    """

    def forward(self, z: Tensor) -> Tensor:
        """Return the larger half, element by element."""
        first, second = z.chunk(2, 1)
        return torch.maximum(first, second)


@dataclass(frozen=True)
class Neuron:
    """How a neuron enters the network of an arena.

    Parameters
    ----------
    label : str
        As tables and figures call it.
    activation : callable
        Takes the number of units of a layer and returns a new module.
    arity : int
        Arguments of a unit: so many maps of the convolution make one.
    layers : tuple of int
        Where the activation stands; elsewhere there is GELU.
    convert : callable, optional
        Takes the network and an example, and returns the one to train.
    arr : float
        The weight λ of ARR's loss; 0: there is none.
    """

    label: str
    activation: Callable[[int], nn.Module]
    arity: int = 1
    layers: tuple[int, ...] = tuple(range(LAYERS))
    convert: Callable[[nn.Module, Tensor], nn.Module] | None = None
    arr: float = 0.0


def _plain(activation: Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
    """For an activation that does not ask for the number of units."""
    return lambda units: activation()


# The paper's value for what it does not tune (appendix A.2).
_ARR_WEIGHT = 1.0

_GELU, _RELU, _RAA = _plain(nn.GELU), _plain(nn.ReLU), partial(RAA, dim=1)

NEURONS: dict[str, Neuron] = {
    "gelu": Neuron("GELU", _GELU),
    "relu": Neuron("ReLU", _RELU),
    "silu": Neuron("SiLU", _plain(nn.SiLU)),
    "mish": Neuron("Mish", _plain(nn.Mish)),
    "prelu": Neuron("PReLU", _plain(PReLU)),
    "aglu": Neuron("AGLU", _plain(partial(AGLU, init="aglu"))),
    "la_silu": Neuron("LA-SiLU", _plain(LASiLU)),
    "la_hardsilu": Neuron("LA-HardSiLU", _plain(LAHardSiLU)),
    "raa": Neuron("RAA", _RAA),
    "arr": Neuron("GELU + ARR", _GELU, arr=_ARR_WEIGHT),
    "dnrt": Neuron("DNRT (RAA + ARR)", _RAA, arr=_ARR_WEIGHT),
    "dac": Neuron("DAC", _RELU, convert=to_dac),
    "multibias": Neuron("multi-bias, 2 copies", _RELU, convert=lambda model, example: to_multibias(model, 2, example)),
    "glu": Neuron("z₁·σ(z₂)", _plain(partial(nn.GLU, dim=1)), arity=2),
    "maxout": Neuron("max(z₁, z₂)", _plain(Maxout), arity=2),
    "two_arguments_last": Neuron(
        "two arguments, learned, in the last layer alone",
        _plain(partial(MultiArgument, 2, dim=1)),
        arity=2,
        layers=(LAYERS - 1,),
    ),
}
"""By the name that settings and rows have."""


def build(name: str, front: nn.Module, shape: Shape, num_classes: int, widths: Sequence[int]) -> nn.Module:
    """Return an arena's network of some widths around a neuron.

    Parameters
    ----------
    name : str
        A key of `NEURONS`.
    front : nn.Module
        The first layer.
    shape : (int, int, int)
        Of an image.
    num_classes : int
        Logits.
    widths : sequence of int
        Units in the layers of each block.

    Returns
    -------
    nn.Module
        Fresh weights from torch's global generator.

    Raises
    ------
    ValueError
        If there is no such neuron.
    """
    if name not in NEURONS:
        raise ValueError(f"neuron is {name!r}; allowed are {', '.join(NEURONS)}")
    neuron = NEURONS[name]
    example = torch.zeros(1, *shape)
    inner = tuple(front(example).shape[1:])

    def activation(layer: int, units: int) -> nn.Module:
        return neuron.activation(units) if layer in neuron.layers else nn.GELU()

    arities = [neuron.arity if layer in neuron.layers else 1 for layer in range(LAYERS)]
    model: nn.Module = ArenaCNN(front, inner, num_classes, widths, activation, arities)
    if neuron.convert is not None:
        model = neuron.convert(model, example)
    if neuron.arr:
        attach_arr(model, "activations.*", num_classes, shape, weight=neuron.arr)
    return model


def equal_widths(
    name: str, front: nn.Module, shape: Shape, num_classes: int, profile: Sequence[int], reference: str = "gelu"
) -> tuple[int, ...]:
    """Return the widths with which a neuron's network has as many parameters as the reference's, within one per cent.

    Those of the profile, if they have: networks of equal widths begin with equal weights. Otherwise all widths are
    those of the profile times one number, rounded, and of these and their neighbours, one unit more or fewer in each
    block, those that come closest.

    Parameters
    ----------
    name : str
        A key of `NEURONS`.
    front, shape, num_classes
        As in `build`.
    profile : sequence of int
        The reference's widths.
    reference : str
        The neuron to be equal to.

    Returns
    -------
    tuple of int
        One a block.

    Raises
    ------
    ValueError
        If there is no such neuron, or no widths come within one per cent.
    """

    def parameters(name: str, widths: Sequence[int]) -> int:
        with torch.random.fork_rng(devices=[]):
            return sum(p.numel() for p in build(name, front, shape, num_classes, widths).parameters())

    return sizes.equal_widths(name, profile, partial(parameters, name), parameters(reference, profile))


def loss_of(model: nn.Module, label_smoothing: float = 0.0) -> Loss:
    """Return cross-entropy, and ARR's loss with it where that is attached.

    Parameters
    ----------
    model : nn.Module
        As `build` gives it.
    label_smoothing : float
        As torch has it.

    Returns
    -------
    callable
        Takes logits and classes.
    """
    arr = getattr(model, "arr", None)

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        task = F.cross_entropy(logits, targets, label_smoothing=label_smoothing)
        return task + arr.loss(targets) if isinstance(arr, AttachedARR) else task

    return loss
