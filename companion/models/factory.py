"""Networks by name, for settings that JSON can hold."""

from collections.abc import Callable, Sequence

from torch import nn

from companion.models.cnn import SmallCNN
from companion.models.mlp import MLP
from companion.models.resnet import resnet32

__all__ = ["build"]


def build(
    name: str,
    input_shape: Sequence[int],
    num_classes: int,
    activation: Callable[[], nn.Module],
    attention: Callable[[int], nn.Module] | None = None,
) -> nn.Module:
    """Return a network by name, fitted to the images.

    Parameters
    ----------
    name : str
        "mlp", "cnn" or "resnet32".
    input_shape : sequence of int
        (C, H, W).
    num_classes : int
        Logits.
    activation : callable
        Returns a new activation module.
    attention : callable, optional
        Takes a number of channels and returns a new attention module. Not for "mlp".

    Returns
    -------
    nn.Module
        With fresh weights from torch's global generator.

    Raises
    ------
    ValueError
        If the name is unknown, or "mlp" is to have an attention.

    Examples
    --------
    >>> type(build("cnn", (1, 8, 8), 10, nn.GELU)).__name__
    'SmallCNN'
    """
    channels, height, width = input_shape
    match name:
        case "mlp":
            if attention is not None:
                raise ValueError('attention is given with name "mlp"; allowed is attention with cnn or resnet32')
            return MLP(channels * height * width, num_classes, activation=activation)
        case "cnn":
            return SmallCNN(channels, num_classes, activation=activation, attention=attention)
        case "resnet32":
            return resnet32(channels, num_classes, activation, attention)
    raise ValueError(f"name is {name!r}; allowed are mlp, cnn, resnet32")
