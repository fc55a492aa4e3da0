"""Networks by name, for settings that JSON can hold."""

from collections.abc import Callable, Sequence
from functools import partial

from torch import nn

from companion.study.models.cnn import SmallCNN
from companion.study.models.mlp import MLP
from companion.study.models.resnet import CifarResNet, resnet20, resnet32, resnet44, resnet56
from companion.study.models.vgg import VGG, vgg14_32, vgg20_16
from companion.study.models.vit import VisionTransformer, vit_tiny

__all__ = ["build"]

#: The widths of the hidden layers.
_PERCEPTRONS = {"mlp": (128, 128), "layer128": (128,), "layer512": (512,)}
_RESNETS: dict[str, Callable[..., nn.Module]] = {
    "resnet20": resnet20,
    "resnet32": resnet32,
    "resnet44": resnet44,
    "resnet56": resnet56,
    "resnet20_v2": partial(resnet20, version="v2"),
    "resnet32_v2": partial(resnet32, version="v2"),
    "resnet44_v2": partial(resnet44, version="v2"),
    "resnet56_v2": partial(resnet56, version="v2"),
    "resnet20_v2_wide4": partial(resnet20, version="v2", width=4),
    "resnet8_half": partial(CifarResNet, 1, width=0.5),
}
_VGGS: dict[str, Callable[..., nn.Module]] = {
    "vgg8_8": partial(VGG, (3, 2, 2), 8),
    "vgg20_16": vgg20_16,
    "vgg14_32": vgg14_32,
}
_VITS: dict[str, Callable[..., nn.Module]] = {
    "vit_tiny": partial(vit_tiny, drop_path=0.1),
    "vit_64x4": partial(VisionTransformer, patch=4, width=64, depth=4, heads=2),
    "vit_64x4_patch2": partial(VisionTransformer, patch=2, width=64, depth=4, heads=2),
}


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
        "mlp" (two hidden layers of 128 units), "layer128" and "layer512" (one of so many), "cnn", "resnet20",
        "resnet32", "resnet44", "resnet56"; the pre-activated "resnet20_v2" to "resnet56_v2", and "resnet20_v2_wide4"
        with four times the channels; "vgg20_16", "vgg14_32"; "vit_tiny" (patches of 4 pixels, drop-path 0.1). For small
        machines: "vgg8_8" (seven convolutions, 8 to 32 channels), "resnet8_half" (one block per stage, 8 to 32
        channels), "vit_64x4" (width 64, 4 blocks, patches of 4 pixels) and "vit_64x4_patch2" (of 2 pixels).
    input_shape : sequence of int
        (C, H, W).
    num_classes : int
        Logits.
    activation : callable
        Returns a new activation module.
    attention : callable, optional
        Takes a number of channels and returns a new attention module. For "cnn" and the residual networks.

    Returns
    -------
    nn.Module
        With fresh weights from torch's global generator.

    Raises
    ------
    ValueError
        If the name is unknown, a perceptron, a VGG or a transformer is to have an attention, or a transformer is to
        take images that are not square.

    Examples
    --------
    >>> type(build("cnn", (1, 8, 8), 10, nn.GELU)).__name__
    'SmallCNN'
    """
    channels, height, width = input_shape
    if attention is not None and name in (*_PERCEPTRONS, *_VGGS, *_VITS):
        raise ValueError(f"attention is given with name {name!r}; allowed is attention with cnn or a resnet")
    if name in _PERCEPTRONS:
        return MLP(channels * height * width, num_classes, _PERCEPTRONS[name], activation)
    if name == "cnn":
        return SmallCNN(channels, num_classes, activation=activation, attention=attention)
    if name in _RESNETS:
        return _RESNETS[name](channels, num_classes, activation, attention)
    if name in _VGGS:
        return _VGGS[name](channels, num_classes, activation)
    if name in _VITS:
        if height != width:
            raise ValueError(f"input_shape is {tuple(input_shape)} with name {name!r}; allowed are square images")
        return _VITS[name](height, channels, num_classes, activation)
    known = (*_PERCEPTRONS, "cnn", *_RESNETS, *_VGGS, *_VITS)
    raise ValueError(f"name is {name!r}; allowed are {', '.join(known)}")
