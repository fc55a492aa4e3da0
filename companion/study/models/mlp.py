"""A plain multilayer perceptron."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn

from companion.study.models.initialisation import initialise

__all__ = ["MLP"]


class MLP(nn.Module):
    """A multilayer perceptron without normalisation: nothing repairs what an activation does to the scale.

    Parameters
    ----------
    in_features : int
        Numbers per example; inputs are flattened.
    num_classes : int
        Logits.
    hidden : sequence of int
        Widths of the hidden layers.
    activation : callable
        Returns a new activation module; called once per hidden layer.

    Examples
    --------
    >>> import torch
    >>> MLP(64, 10, activation=nn.GELU)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        hidden: Sequence[int] = (128, 128),
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise((in_features, *hidden)))
        self.head = nn.Linear((in_features, *hidden)[-1], num_classes)
        initialise(self.layers, self.head)
        self.activations = nn.ModuleList(activation() for _ in hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = x.flatten(1)
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(layer(x))
        logits: Tensor = self.head(x)
        return logits
