"""Networks of units with several weighted sums each: perceptron and convolutions, and the widths that make them equal.

A unit with `arity` arguments has as many weighted sums, which lie side by side; the activation makes one number of
them. With an arity of 1 these are ordinary networks.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from companion.study.models.initialisation import initialise

__all__ = ["UnitCNN", "UnitMLP", "matched_widths"]


class _SampleNorm(nn.Module):
    """Layer normalisation over all numbers of a sample, without learned ones."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[1:])


class UnitMLP(nn.Module):
    """A multilayer perceptron of units with several arguments: linear, normalisation if wanted, activation, dropout.

    Parameters
    ----------
    in_features : int
        Numbers per example; inputs are flattened.
    num_classes : int
        Logits.
    hidden : sequence of int
        Units of the hidden layers; each has `arity` weighted sums.
    activation : callable
        Returns an activation module that makes one number of `arity` neighbours along the last dimension. Called once
        per hidden layer; it may return the same module every time, which the layers then share.
    arity : int
        Arguments of a unit.
    norm : bool
        Whether layer normalisation, without learned numbers, comes before each activation.
    dropout : float
        The share of the activations' outputs that is dropped.

    Examples
    --------
    >>> import torch
    >>> UnitMLP(64, 10, (32, 16), lambda: nn.MaxPool1d(2), arity=2)(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        hidden: Sequence[int] = (64, 64, 64),
        activation: Callable[[], nn.Module] = nn.ReLU,
        arity: int = 1,
        norm: bool = False,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n, arity * m) for n, m in pairwise((in_features, *hidden)))
        self.head = nn.Linear(hidden[-1], num_classes)
        initialise(self.layers, self.head)
        self.norms = nn.ModuleList(_SampleNorm() if norm else nn.Identity() for _ in hidden)
        self.activations = nn.ModuleList(activation() for _ in hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = x.flatten(1)
        for layer, norm, activation in zip(self.layers, self.norms, self.activations, strict=True):
            x = self.dropout(activation(norm(layer(x))))
        logits: Tensor = self.head(x)
        return logits


class UnitCNN(nn.Module):
    """3×3 convolutions to units with several arguments: normalisation if wanted, activation, max pooling, dropout.

    After each activation the map is halved, where it is at least 2×2. The mean over the map feeds the head.

    Parameters
    ----------
    in_channels : int
        Channels of the images.
    num_classes : int
        Logits.
    hidden : sequence of int
        Feature maps behind the activations; each is made of `arity` maps of a convolution.
    activation : callable
        Returns an activation module that makes one map of `arity` neighbours along dimension 1; see `UnitMLP`.
    arity : int
        Arguments of a unit.
    norm : bool
        Whether layer normalisation over channels and pixels, without learned numbers, comes before each activation.
    dropout : float
        The share of the pooled numbers that is dropped.

    Examples
    --------
    >>> import torch
    >>> UnitCNN(3, 10, (4, 8))(torch.zeros(2, 3, 9, 9)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        hidden: Sequence[int] = (60, 120, 120, 120),
        activation: Callable[[], nn.Module] = nn.ReLU,
        arity: int = 1,
        norm: bool = False,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(n, arity * m, 3, padding=1) for n, m in pairwise((in_channels, *hidden))
        )
        self.head = nn.Linear(hidden[-1], num_classes)
        initialise(self.convolutions, self.head)
        self.norms = nn.ModuleList(_SampleNorm() if norm else nn.Identity() for _ in hidden)
        self.activations = nn.ModuleList(activation() for _ in hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        for convolution, norm, activation in zip(self.convolutions, self.norms, self.activations, strict=True):
            x = activation(norm(convolution(x)))
            x = self.dropout(F.max_pool2d(x, 2) if min(x.shape[2:]) > 1 else x)
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def matched_widths(profile: Sequence[int], count: Callable[[Sequence[int]], int], budget: int) -> tuple[int, ...]:
    """Find the widest network of a profile that has no more parameters than another.

    Layer by layer a unit is added: always where the width is the smallest share of the profile's, among the layers
    where one more stays within the budget.

    Parameters
    ----------
    profile : sequence of int
        Widths that say how wide the layers are beside each other.
    count : callable
        Takes widths, returns how many parameters a network with them has; more for wider ones.
    budget : int
        The most that it may have.

    Returns
    -------
    tuple of int
        Not one layer could be wider.

    Raises
    ------
    ValueError
        If even one unit a layer is too much.

    Examples
    --------
    >>> matched_widths((2, 4), lambda widths: 10 * widths[0] + widths[0] * widths[1], 120)
    (6, 10)
    """
    widths = [1] * len(profile)
    if count(widths) > budget:
        raise ValueError(f"budget is {budget}; allowed is {count(widths)} or more, for one unit a layer")
    while True:
        for layer in sorted(range(len(profile)), key=lambda i: widths[i] / profile[i]):
            wider = [width + (i == layer) for i, width in enumerate(widths)]
            if count(wider) <= budget:
                widths = wider
                break
        else:
            return tuple(widths)
