"""Neurons to compare with: each enters a network as those of the rooms do, and declares the same of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor, nn

from companion.activations import KINDS
from companion.baselines import (
    GEGLU,
    GLU,
    ExtraLinear,
    Maxout,
    Preceded,
    PReLU,
    SwiGLU,
    Swish,
    normalisation,
)
from companion.neurons.centre import attach_centre, detach_centre
from companion.neurons.declaration import Holding, Neuron, Replacing, Widening, preceding
from companion.rehearsal import Example

__all__ = ["NEURONS", "activations"]

# λ of Wen et al. for their faces, where α is 0.5.
_CENTRE_WEIGHT = 0.003


def _attach_centre(model: nn.Module, example: Example, classes: int, _: object, weight: float) -> object:
    return attach_centre(model, example, classes, weight)


def _centre_loss(model: nn.Module, target: Tensor) -> Tensor:
    loss: Tensor = model.centre.loss(target)  # type: ignore[operator, union-attr]
    return loss


NEURONS = (
    Neuron("relu", "ReLU", "unit", Replacing(nn.ReLU), elementwise=True, monotone=True, zero_at_zero=True),
    Neuron("gelu", "GELU", "unit", Replacing(nn.GELU), elementwise=True, zero_at_zero=True),
    Neuron("silu", "SiLU", "unit", Replacing(nn.SiLU), elementwise=True, zero_at_zero=True),
    Neuron("mish", "Mish", "unit", Replacing(nn.Mish), modules=(nn.Mish,), elementwise=True, zero_at_zero=True),
    # a slope may become negative
    Neuron("prelu", "PReLU", "unit", Replacing(PReLU), modules=(PReLU,), elementwise=True, zero_at_zero=True),
    Neuron("swish", "Swish", "unit", Replacing(Swish), modules=(Swish,), elementwise=True, zero_at_zero=True),
    Neuron("glu", "z₁·σ(z₂)", "unit", Widening(lambda channels, dim: GLU(dim)), modules=(GLU,), arity=2),
    Neuron("geglu", "GEGLU", "unit", Widening(lambda channels, dim: GEGLU(dim)), modules=(GEGLU,), arity=2),
    Neuron("swiglu", "SwiGLU", "unit", Widening(lambda channels, dim: SwiGLU(dim)), modules=(SwiGLU,), arity=2),
    Neuron("maxout", "max(z₁, z₂)", "unit", Widening(lambda channels, dim: Maxout(dim)), modules=(Maxout,), arity=2),
    Neuron("norm", "normalised", "before", preceding(normalisation), modules=(Preceded,)),
    Neuron("extra_linear", "extra linear layer", "before", preceding(ExtraLinear), modules=(Preceded,)),
    Neuron(
        "centre",
        "centre loss",
        "loss",
        Holding(_attach_centre, weight=_CENTRE_WEIGHT, movable=False),
        leave=detach_centre,
        loss=_centre_loss,
        needs_labels=True,
    ),
)
"""ReLU and its relatives, pairs with a fixed function, what may stand before an activation, and ARR's relative."""


def activations(*names: str, own: Iterable[Neuron] = ()) -> dict[str, Callable[..., nn.Module]]:
    """Return by name what makes activations of units: as a room's own neurons or those above have them, else torch's.

    Parameters
    ----------
    *names : str
        Of neurons, or of torch's kinds, such as "softplus".
    own : iterable of Neuron
        The room's.

    Examples
    --------
    >>> [make() for make in activations("prelu", "elu").values()]
    [PReLU(num_parameters=1), ELU(alpha=1.0)]
    """
    known = {neuron.name: neuron.enter for neuron in (*NEURONS, *own)}
    return {name: it.begin() if isinstance(it := known.get(name), Replacing) else KINDS[name] for name in names}
