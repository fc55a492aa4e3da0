"""Plain networks that take their activation, and their channel attention, as an argument.

An activation is given as a factory, a callable that returns a new module: every layer gets its own, with
parameters of its own. All weights are drawn before the activations are made, so two networks built from the
same seed have the same weights, whichever activation they carry.
"""

from companion.study.models.cnn import SmallCNN
from companion.study.models.factory import build
from companion.study.models.mlp import MLP
from companion.study.models.resnet import CifarResNet, resnet20, resnet32, resnet44, resnet56
from companion.study.models.standardise import Standardise
from companion.study.models.units import UnitCNN, UnitMLP, matched_widths
from companion.study.models.vgg import VGG, vgg14_32, vgg20_16
from companion.study.models.vit import DropPath, VisionTransformer, vit_tiny

__all__ = [
    "MLP",
    "VGG",
    "CifarResNet",
    "DropPath",
    "SmallCNN",
    "Standardise",
    "UnitCNN",
    "UnitMLP",
    "VisionTransformer",
    "build",
    "matched_widths",
    "resnet20",
    "resnet32",
    "resnet44",
    "resnet56",
    "vgg14_32",
    "vgg20_16",
    "vit_tiny",
]
