"""Where PyTorch's documentation describes a name. The installed torch says whether there is one; no network is needed.

A function or class has a page of its own name; the few that stand on a page with others are listed.
"""

from __future__ import annotations

import functools
import re
import types
from typing import Any

import torch

PLACE = "https://docs.pytorch.org/docs/stable/"

_TOGETHER = {
    "torch.Tensor": "tensors.html",
    "torch.device": "tensor_attributes.html",
    "torch.dtype": "tensor_attributes.html",
    "torch.utils.data.DataLoader": "data.html",
    "torch.utils.data.Dataset": "data.html",
    "torch.utils.data.TensorDataset": "data.html",
    "torch.optim.Optimizer": "optim.html",
}
_ALONE = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.jit", "torch.autograd")
_MODULES = (
    "torch.fx",
    "torch.func",
    "torch.distributed",
    "torch.nn.functional",
    "torch.onnx",
    "torch.nn",
    "torch.optim",
)
_SHORT = {"Tensor": "torch.Tensor", "Module": "torch.nn.Module"}


def address(name: str) -> str | None:
    """The address at which torch's documentation describes a name, or None for what is not torch's or not described.

    Parameters
    ----------
    name
        As code writes it ("torch.nn.Linear", "nn.Linear") or as its class does ("torch.nn.modules.linear.Linear").
    """
    name = _SHORT.get(name, re.sub(r"^nn\.", "torch.nn.", name))
    name = re.sub(r"^(torch\.nn)\.modules\.\w+\.(\w+)$", r"\1.\2", name)
    if name in _TOGETHER:
        return f"{PLACE}{_TOGETHER[name]}#{name}"
    found = _look_up(name)
    if found is None:
        return None
    if isinstance(found, types.ModuleType):
        return f"{PLACE}{name.removeprefix('torch.')}.html" if name in _MODULES else None
    if name.rpartition(".")[0] not in _ALONE or not callable(found):
        return None
    return f"{PLACE}generated/{name}.html#{name}"


def _look_up(name: str) -> Any:
    first, *rest = name.split(".")
    if first != "torch":
        return None
    try:
        return functools.reduce(getattr, rest, torch)
    except AttributeError:
        return None
