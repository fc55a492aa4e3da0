"""The one weight initialisation of the plain networks."""

from collections.abc import Iterable

from torch import nn

__all__ = ["initialise"]


def initialise(hidden: Iterable[nn.Module], head: nn.Linear) -> None:
    """Draw the weights of a network anew, in place, from torch's global generator.

    Hidden layers: Kaiming normal with the gain of ReLU, whatever the activation, so that competitors start
    from the same weights. Head: normal with variance 1/fan-in. Biases start at zero.

    Parameters
    ----------
    hidden : iterable of nn.Module
        Linear and convolution layers that an activation follows.
    head : nn.Linear
        The layer that gives the logits.
    """
    for layer in hidden:
        if not isinstance(layer, (nn.Linear, nn.Conv2d)):
            raise TypeError(f"hidden holds a {type(layer).__name__}; allowed are Linear and Conv2d")
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    nn.init.normal_(head.weight, std=head.in_features**-0.5)
    nn.init.zeros_(head.bias)
