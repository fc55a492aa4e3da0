"""How RAA and ARR enter a network: one activates units, the other holds what all units give to their class."""

from collections.abc import Iterable

from torch import Tensor, nn

from companion.dnrt.attachment import Response, attach_arr, detach_arr
from companion.dnrt.layers import RAA
from companion.neurons import Holding, Neuron, Replacing, units_of
from companion.rehearsal import Example

__all__ = ["NEURONS"]


def _attach_arr(
    model: nn.Module,
    example: Example,
    classes: int,
    held: str | Iterable[str] | None,
    weight: float,
    response: Response = "auto",
) -> object:
    if not (layers := held or units_of(model)):
        raise ValueError(
            f"model: in {type(model).__name__} no activation of units is a module, allowed is one with such modules; "
            "a composition such as 'relu+arr' puts them in"
        )
    return attach_arr(model, layers, classes, example, weight=weight, response=response)


def _arr_loss(model: nn.Module, target: Tensor) -> Tensor:
    loss: Tensor = model.arr.loss(target)  # type: ignore[operator, union-attr]
    return loss


NEURONS = (
    Neuron("raa", "RAA", "unit", Replacing(RAA), modules=(RAA,), zero_at_zero=True),
    Neuron("arr", "ARR", "loss", Holding(_attach_arr), leave=detach_arr, loss=_arr_loss, needs_labels=True),
)
"""DNRT is both, "raa+arr"; λ is 1 where nobody says otherwise, the paper's value for what it does not tune (A.2)."""
