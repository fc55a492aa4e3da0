"""Networks by name, for settings that JSON can hold."""

from collections.abc import Callable, Sequence

from torch import nn

from companion.models.cnn import SmallCNN
from companion.models.mlp import MLP
from companion.models.resnet import resnet20, resnet32, resnet44

__all__ = ["build"]

_RESNETS = {"resnet20": resnet20, "resnet32": resnet32, "resnet44": resnet44}


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
        "mlp" (two hidden layers of 128 units), "layer512" (one of 512), "cnn", "resnet20", "resnet32" or
        "resnet44".
    input_shape : sequence of int
        (C, H, W).
    num_classes : int
        Logits.
    activation : callable
        Returns a new activation module.
    attention : callable, optional
        Takes a number of channels and returns a new attention module. Not for perceptrons.

    Returns
    -------
    nn.Module
        With fresh weights from torch's global generator.

    Raises
    ------
    ValueError
        If the name is unknown, or a perceptron is to have an attention.

    Examples
    --------
    >>> type(build("cnn", (1, 8, 8), 10, nn.GELU)).__name__
    'SmallCNN'
    """
    channels, height, width = input_shape
    match name:
        case "mlp" | "layer512":
            if attention is not None:
                raise ValueError(f"attention is given with name {name!r}; allowed is attention with cnn or a resnet")
            hidden = (128, 128) if name == "mlp" else (512,)
            return MLP(channels * height * width, num_classes, hidden, activation)
        case "cnn":
            return SmallCNN(channels, num_classes, activation=activation, attention=attention)
        case "resnet20" | "resnet32" | "resnet44":
            return _RESNETS[name](channels, num_classes, activation, attention)
    raise ValueError(f"name is {name!r}; allowed are mlp, layer512, cnn, {', '.join(_RESNETS)}")
