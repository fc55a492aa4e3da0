"""The neurons that meet in the convolutional arena, each with how it enters, and the widths that make them equal.

They are those that the library declares (`companion.neurons`), alone or composed. The network is built around what
activates its units, which stands in every layer, or in some; of several arguments, it has as many maps before it for
each of its units. The others enter the network then: DAC and multi-bias move the activations, and ARR is attached to
what all activations give, averaged over the pixels.

The library's GLU and maxout take the arguments of a unit from neighbours, as the learned function does; here they take
two halves of the maps, as torch has it, and so the committed results.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion import neurons
from companion.dnrt.attachment import AttachedARR
from companion.neurons.centre import AttachedCentre
from companion.rehearsal import Example
from companion.study.together.network import LAYERS, ArenaCNN
from companion.study.together.sizes import as_wide_as
from companion.study.training import Loss

__all__ = ["NEURONS", "Maxout", "Neuron", "build", "composed", "equal_widths", "halves", "loss_of", "named"]

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
    """What an arena's network is built around, and what enters it then.

    Parameters
    ----------
    label : str
        As tables and figures call it.
    places : callable
        Returns, for one network, what makes the activation of a layer, told its units and their dimension.
    arity : int
        Arguments of a unit: so many weighted sums make one.
    layers : tuple of int
        Where the activation stands in the convolutional arena; elsewhere there is GELU.
    then : tuple of companion.neurons.Neuron
        What enters the network.
    """

    label: str
    places: Callable[[], Callable[[int, int], nn.Module]]
    arity: int = 1
    layers: tuple[int, ...] = tuple(range(LAYERS))
    then: tuple[neurons.Neuron, ...] = ()

    def enter(self, model: nn.Module, example: Example, num_classes: int) -> nn.Module:
        """Return the network, which was built around the activation, with what enters it."""
        for each in self.then:
            model = each.enter(model, example, num_classes)
        return model


def composed(names: str, label: str = "") -> Neuron:
    """Return neurons of the library as an arena has them.

    Parameters
    ----------
    names : str
        As `companion.rethink` takes them, what activates units first: "gelu", "raa+arr".
    label : str
        Empty: their titles.
    """
    unit, *then = (neurons.declared()[name] for name in names.split("+"))
    label = label or " + ".join(each.title for each in (unit, *then))
    return Neuron(label, unit.places, unit.arity, then=tuple(then))


def halves(label: str, make: Callable[[], nn.Module]) -> Neuron:
    """Return a neuron of two arguments that are two halves of the layer before it."""
    return Neuron(label, lambda: lambda units, dim: make(), arity=2)


_ALONE = ("gelu", "relu", "silu", "mish", "prelu", "aglu", "la_silu", "la_hardsilu", "raa")

NEURONS: dict[str, Neuron] = {
    **{name: composed(name) for name in _ALONE},
    "arr": composed("gelu+arr"),
    "dnrt": composed("raa+arr", "DNRT (RAA + ARR)"),
    "dac": composed("relu+dac", "DAC"),
    "multibias": composed("relu+multibias", "multi-bias, 2 copies"),
    "glu": halves("z₁·σ(z₂)", partial(nn.GLU, dim=1)),
    "maxout": halves("maxout, max(z₁, z₂)", Maxout),
    "two_arguments_last": replace(
        composed("two_arguments", "two arguments, learned, last layer"), layers=(LAYERS - 1,)
    ),
}
"""By the name that settings and rows have."""


def named(name: str, known: Mapping[str, Neuron] = NEURONS, refused: Mapping[str, str] | None = None) -> Neuron:
    """Return a neuron of an arena by its name.

    Parameters
    ----------
    name : str
        Of the neuron.
    known : mapping
        The arena's.
    refused : mapping, optional
        Those that it does not hold, and why.

    Raises
    ------
    ValueError
        If there is no such neuron, or the arena does not hold it; then the error says why.
    """
    if refused and name in refused:
        raise ValueError(f"neuron is {name!r}, which this arena does not hold: {refused[name]}")
    if name not in known:
        raise ValueError(f"neuron is {name!r}; allowed are {', '.join(known)}")
    return known[name]


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
    neuron = named(name)
    inner = tuple(front(torch.zeros(1, *shape)).shape[1:])

    def activation(layer: int, units: int) -> nn.Module:
        return neuron.places()(units, 1) if layer in neuron.layers else nn.GELU()

    arities = [neuron.arity if layer in neuron.layers else 1 for layer in range(LAYERS)]
    return neuron.enter(ArenaCNN(front, inner, num_classes, widths, activation, arities), shape, num_classes)


def equal_widths(
    name: str, front: nn.Module, shape: Shape, num_classes: int, profile: Sequence[int], reference: str = "gelu"
) -> tuple[int, ...]:
    """Return the widths with which a neuron's network has as many parameters as the reference's, see `as_wide_as`.

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
    """
    return as_wide_as(name, profile, lambda name, widths: build(name, front, shape, num_classes, widths), reference)


def loss_of(model: nn.Module, label_smoothing: float = 0.0) -> Loss:
    """Return cross-entropy, and the loss of ARR or of centres with it where such a one is attached.

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
    attached = next((each for each in model.children() if isinstance(each, (AttachedARR, AttachedCentre))), None)

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        task = F.cross_entropy(logits, targets, label_smoothing=label_smoothing)
        return task if attached is None else task + attached.loss(targets)

    return loss
