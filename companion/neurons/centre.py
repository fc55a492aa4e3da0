"""Centre loss for any network that classifies: a hook takes what its last dense layer sees."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from companion.baselines import CentreLoss
from companion.operators import as_float, as_int, in_backward
from companion.rehearsal import Example, call, example_of, like_of, refuse_a_loop, rehearse

__all__ = ["AttachedCentre", "attach_centre", "detach_centre"]

NAME = "centre"
"""Under which the network holds it."""


class AttachedCentre(nn.Module):
    """What `attach_centre` puts into a network as ``model.centre``. As a module it gives back what it is given.

    Parameters
    ----------
    head : str
        The name of the layer whose input is held to its class's centre.
    centre : CentreLoss
        For that input.
    weight : float
        λ.
    """

    def __init__(self, head: str, centre: CentreLoss, weight: float) -> None:
        super().__init__()
        self.head, self.centre, self.weight = head, centre, weight
        self.responses: Tensor | None = None
        self.without_gradient = False

    def __getstate__(self) -> dict[str, Any]:
        """The responses of a forward pass belong to no copy."""
        return {**vars(self), "responses": None}

    def forward(self, x: Any, *others: Any, **named: Any) -> Any:
        """Give back the first argument."""
        return x

    def loss(self, target: Tensor) -> Tensor:
        """Take λ times the loss of the network's last forward pass, and let the centres move.

        Parameters
        ----------
        target : Tensor
            (N,), the class of each example.

        Raises
        ------
        RuntimeError
            If the network did not run in training mode since the last call, or the layer ran where gradients were
            switched off, as in a checkpoint with reentrance.
        """
        if self.responses is None:
            raise RuntimeError(
                f"loss: got no response of {self.head!r}, allowed is one call after each forward pass in training mode"
            )
        if self.without_gradient and torch.is_grad_enabled():
            raise RuntimeError(
                f"loss: got a response of {self.head!r} without a gradient, in a pass with gradients: it would train "
                "nothing; allowed are checkpoints with use_reentrant=False"
            )
        responses, self.responses = self.responses, None
        loss: Tensor = self.weight * self.centre(responses, target)
        return loss

    def extra_repr(self) -> str:
        """Weight and layer."""
        return f"weight={self.weight}, head={self.head!r}"


class _Listener:
    """The hook of the last layer. A copy of the network has a copy of it, which listens for the copied loss."""

    def __init__(self, attached: AttachedCentre) -> None:
        self.attached = attached

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if self.attached.training and not in_backward():  # what a checkpoint computes again belongs to no pass
            (self.attached.responses,) = args or (kwargs or {}).values()
            self.attached.without_gradient = not torch.is_grad_enabled()


class _Beginning:
    """The hook of the network before it runs: of an earlier pass nothing is left."""

    def __init__(self, attached: AttachedCentre) -> None:
        self.attached = attached

    def __call__(self, model: nn.Module, args: tuple[Any, ...]) -> None:
        if self.attached.training and not in_backward():
            self.attached.responses = None


def attach_centre(model: nn.Module, example: Example, num_classes: int, weight: float) -> AttachedCentre:
    """Hold what the last dense layer of a network sees to the centre of its class while it trains.

    Parameters
    ----------
    model : nn.Module
        A network that classifies. It gets a hook and a module ``centre``.
    example : Tensor, sequence of int, tuple or mapping
        As in `companion.attach_arr`.
    num_classes : int
        K, by which the layer is found: it is the last nn.Linear with so many outputs.
    weight : float
        λ, at least 0.

    Returns
    -------
    AttachedCentre
        It is ``model.centre``: after each forward pass in training mode, ``model.centre.loss(target)`` is the loss.

    Raises
    ------
    TypeError
        If a number is not one.
    ValueError
        If no such layer sees vectors (N, d), a number is out of range, or the network has a ``centre``.

    References
    ----------
    Wen, Zhang, Li, Qiao (2016), A discriminative feature learning approach for deep face recognition.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> attach_centre(model, (8,), num_classes=3, weight=0.003).head
    '2'
    """
    if hasattr(model, NAME):
        raise ValueError(f"model: got one that has a {NAME!r} already, allowed is one without")
    num_classes, weight = as_int("num_classes", num_classes, minimum=1), as_float("weight", weight)
    if not 0 <= weight < float("inf"):
        raise ValueError(f"weight: got {weight}, allowed is a finite number, at least 0")
    found = rehearse(model, functools.partial(_heads, example=example, classes=num_classes))
    if not found:
        raise ValueError(
            f"model: in {type(model).__name__} no nn.Linear with {num_classes} outputs sees (N, d); allowed are "
            "networks that end in one"
        )
    refuse_a_loop(model, NAME, example)
    head, length = found[-1]
    like = like_of(model)
    attached = AttachedCentre(head, CentreLoss(num_classes, length).to(like.device), weight).train(model.training)
    model.register_forward_pre_hook(_Beginning(attached))
    model.get_submodule(head).register_forward_pre_hook(_Listener(attached), with_kwargs=True)
    model.add_module(NAME, attached)
    return attached


def _heads(model: nn.Module, example: Example, classes: int) -> list[tuple[str, int]]:
    """The dense layers with so many outputs that see vectors, as they are called, and how long the vectors are."""
    found: list[tuple[str, int]] = []

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> None:
        (x,) = args or kwargs.values()  # of a layer with one argument
        if x.ndim == 2:
            found.append((name, x.shape[1]))

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module.out_features == classes:
            module.register_forward_pre_hook(functools.partial(note, name=name), with_kwargs=True)
    call(model, example_of(model, example), example)
    return found


def detach_centre(model: nn.Module) -> nn.Module:
    """Undo `attach_centre`, in the network itself.

    Parameters
    ----------
    model : nn.Module
        A network with a ``centre``.

    Returns
    -------
    nn.Module
        The network.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(8, 3))
    >>> _ = attach_centre(model, (8,), num_classes=3, weight=0.003)
    >>> detach_centre(model)
    Sequential(
      (0): Linear(in_features=8, out_features=3, bias=True)
    )
    """
    head = model.get_submodule(model.get_submodule(NAME).head)  # type: ignore[arg-type]
    for module in (model, head):
        for number, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, (_Beginning, _Listener)):
                del module._forward_pre_hooks[number]
                module._forward_pre_hooks_with_kwargs.pop(number, None)
    delattr(model, NAME)
    return model
