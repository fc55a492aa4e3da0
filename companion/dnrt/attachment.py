"""ARR for any network: hooks take the responses of its layers, and a loss is asked for with the targets."""

from __future__ import annotations

import contextlib
import fnmatch
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from companion.dnrt.layers import ARR
from companion.operators import as_float, in_backward
from companion.rehearsal import Example, call, example_of, like_of, refuse_a_loop, rehearse
from companion.surgery.layouts import Seen, look

__all__ = ["AttachedARR", "attach_arr", "detach_arr"]

NAME = "arr"
"""Under which the network holds it."""

Response: TypeAlias = Literal["auto", "class_token", "mean"] | Callable[[Tensor], Tensor]


class _Responses:
    """Of the last forward pass, by layer. They belong to no copy of the network."""

    def __init__(self) -> None:
        self.by_layer: dict[str, Tensor] = {}
        #: The network, while its pass has had no loss, and the layers that ran without gradients.
        self.model: nn.Module | None = None
        self.without: set[str] = set()

    def begin(self, model: nn.Module | None) -> None:
        """Forget the pass before."""
        self.by_layer.clear()
        self.without.clear()
        self.model = model

    def __reduce__(self) -> tuple[type[_Responses], tuple[()]]:
        return _Responses, ()


class _Beginning:
    """The hook of the network before it runs: of an earlier pass nothing is left."""

    def __init__(self, attached: AttachedARR) -> None:
        self.attached = attached

    def __call__(self, model: nn.Module, args: Any) -> None:
        if self.attached.training and not in_backward():
            self.attached.responses.begin(model)


class _Listener:
    """The hook of a layer. A copy of the network has a copy of it, which listens for the copied loss."""

    def __init__(self, name: str, attached: AttachedARR, dim: int) -> None:
        self.name, self.attached, self.dim = name, attached, dim

    def __call__(self, layer: nn.Module, args: Any, output: Any) -> None:
        if not self.attached.training:
            return
        response = _response(self.name, output, self.attached.response, self.dim)
        responses = self.attached.responses
        if in_backward():  # what a checkpoint computes again belongs to no pass, though it has to compute it
            return
        responses.by_layer[self.name] = response
        if torch.is_grad_enabled():
            responses.without.discard(self.name)
        elif responses.model is not None and _learns(responses.model, self.name):
            responses.without.add(self.name)


def _learns(model: nn.Module, name: str) -> bool:
    """Whether a layer has parameters to train, or, if it has none at all, the smallest module around it that has."""
    while name and next(model.get_submodule(name).parameters(), None) is None:
        name = name.rpartition(".")[0]
    return any(parameter.requires_grad for parameter in model.get_submodule(name).parameters())


def _response(name: str, output: Any, response: Response, dim: int) -> Tensor:
    """(N, d) of a layer's output; of three dimensions the units lie along ``dim``."""
    if callable(response):
        output, response, dim = response(output), "mean", -1
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if isinstance(output, Tensor):
        if output.ndim == 2:
            return output.clone()  # what comes after may write into it
        if output.ndim == 3 and dim == -1:
            return output[:, 0].clone() if response == "class_token" else output.mean(1)
        if output.ndim >= 3 and response == "mean":
            return output.mean(tuple(range(2, output.ndim)))
    maps = "" if response == "class_token" else " and maps such as (N, d, H, W)"
    raise ValueError(
        f"layers: {name!r} gives {shape}, allowed are (N, d), tokens (N, L, d){maps}; response may be a function that "
        "makes one of these"
    )


class AttachedARR(nn.Module):
    """What `attach_arr` puts into a network as ``model.arr``: it knows the loss of the last forward pass.

    As a module it gives back what it is given, for containers such as Sequential run all that they hold.

    Parameters
    ----------
    widths : dict of str to int
        d by layer.
    arr : ARR
        For the responses of all layers side by side.
    weight : float
        λ.
    response : str or callable
        As in `attach_arr`, but not "auto".
    held : dict of str to str
        What represents an example, in a few words such as "mean over 50 tokens", by layer; without those whose output
        is taken as it is. The sizes are those of the example.

    Attributes
    ----------
    arr : ARR
        Its buffers are the means of all layers, side by side.
    """

    def __init__(
        self, widths: dict[str, int], arr: ARR, weight: float, response: Response, held: dict[str, str]
    ) -> None:
        super().__init__()
        self.widths, self.arr, self.weight, self.response, self.held = widths, arr, weight, response, held
        self.responses = _Responses()

    def forward(self, x: Any, *others: Any, **named: Any) -> Any:
        """Give back the first argument."""
        return x

    def loss(self, target: Tensor) -> Tensor:
        r"""Take the loss of the network's last forward pass, and let the means move.

        .. math:: \lambda\,\frac1J \sum_{j=1}^{J} \mathcal L^j

        Parameters
        ----------
        target : Tensor
            (N,), the class of each example.

        Returns
        -------
        Tensor
            0-d: λ times the mean over the J layers.

        Raises
        ------
        RuntimeError
            If the network did not run in training mode since the last call, or not all of its layers did, or one of
            them ran where gradients were switched off, as in a checkpoint with reentrance.
        """
        by_layer = self.responses.by_layer
        if missing := [name for name in self.widths if name not in by_layer]:
            raise RuntimeError(
                f"loss: got no response of {missing[0]!r}, "
                + (
                    f"which did not run in the last forward pass, as {next(iter(by_layer))!r} did; allowed are layers "
                    "that run in each: hold others, or drop none"
                    if by_layer
                    else "allowed is one call after each forward pass in training mode"
                    + ("" if self.training else "; this network is in evaluation mode, where nothing is held")
                )
            )
        if torch.is_grad_enabled() and (without := self.responses.without):
            raise RuntimeError(
                f"loss: got a response of {min(without)!r} without a gradient, where gradients are on: it would train "
                "nothing; allowed are a call in torch.no_grad() after a pass in it, checkpoints with "
                "use_reentrant=False, and to hold no layer that runs in torch.no_grad()"
            )
        responses = [by_layer[name] for name in self.widths]
        # (N, Σ d_j): all layers at once
        loss = self.arr.loss(torch.cat(responses, 1), target, list(self.widths.values()))
        self.responses.begin(None)
        return self.weight * loss

    def means(self) -> dict[str, Tensor]:
        """The class means (K, d) by layer."""
        return dict(zip(self.widths, torch.split(self.arr.mean, list(self.widths.values()), 1), strict=True))

    def extra_repr(self) -> str:
        lines = [f"weight={self.weight}, layers={list(self.widths)}"]
        for words in dict.fromkeys(self.held.values()):
            lines.append(f"{words}: {', '.join(name for name, its in self.held.items() if its == words)}")
        return "\n".join(lines)


def attach_arr(
    model: nn.Module,
    layers: str | Iterable[str],
    num_classes: int,
    example: Example | None = None,
    *,
    weight: float = 1.0,
    momentum: float = 0.1,
    read: Literal["before", "after"] = "before",
    init: Literal["first", "zero"] = "first",
    response: Response = "auto",
) -> AttachedARR:
    r"""Hold the responses of some layers of a network to their class while it trains.

    The network itself is changed: its layers get hooks, and it gets a module ``arr``, which is saved, copied and moved
    with it. What it computes stays the same, and so does its speed in evaluation mode.

    Parameters
    ----------
    model : nn.Module
        Any network.
    layers : str or iterable of str
        Names of modules as ``model.named_modules`` has them, or patterns such as ``"blocks.*"`` (a ``*`` stands for one
        part of a name, no dot in it).
    num_classes : int
        How many classes there are: K.
    example : Tensor, sequence of int, tuple or mapping
        An input, or the shape of one example without the batch, such as (C, H, W). Always needed: the network runs on
        tensors of these shapes that hold no numbers, to learn how long the responses are; then on one example more,
        to see that each has one response. How many examples there are, logits (N, K) of the network say, or else the
        first tensor that it is given.
    weight : float
        λ, at least 0.
    momentum, read, init
        As in :class:`companion.ARR`.
    response : {"auto", "class_token", "mean"} or callable
        What represents an example in a layer's output. Outputs (N, d) are taken as they are, and maps, such as
        (N, d, H, W), are averaged over their pixels; so are outputs (N, d, L), where the layer or the last one that
        says where its channels are, such as Conv1d, has them there. All others of three dimensions are tokens
        (N, L, d), of which it is the first, or their mean; "auto" is the first where the network has a parameter
        ``cls_token`` or ``class_token``. (Where that joins the others late, as in CaiT, say "mean" for the blocks
        before.) A function takes an output and returns (N, d), tokens (N, L, d) or maps.

    Returns
    -------
    AttachedARR
        It is ``model.arr``: after each forward pass in training mode, ``model.arr.loss(target)`` is λ times the loss,
        averaged over the layers. Its ``repr`` says what is held of each layer, such as "mean over 50 tokens".

    Raises
    ------
    TypeError
        If there is no example.
    ValueError
        If no module or nothing usable has such a name, a module has several, its responses are not one for each
        example, a number is out of range, or the network has an ``arr``.

    Notes
    -----
    `detach_arr` undoes it. Attach first, compile then: what torch.compile has made of a network does not notice hooks
    that come or go later, until ``torch.compiler.reset()``, nor does it tell networks of one class apart of which only
    one has them. Who compiles both in a process sets ``torch._dynamo.config.skip_nnmodule_hook_guards = False`` before,
    or `AttachedARR.loss` may find no responses. The means take K · Σ d_j numbers: for ImageNet-1K and the twelve blocks
    of a ViT-B 1000 · 12 · 768 · 4 bytes, 37 MB. The published code takes the class token after every block of a ViT. Of
    a layer that runs several times in a forward pass the last output counts; each held layer has to run in each pass,
    so none that is dropped at random (LayerDrop) can be held. A pass begins where the network itself is called, and
    forgets the one before. Checkpoints must be torch's with ``use_reentrant=False``: others give no gradient, and
    `AttachedARR.loss` raises. Hooks that the network has run on the example, see `companion.replace_activations`. Of an
    ``nn.Sequential`` it is the last child: ``len(model)`` and ``model[:-1]`` count it.
    Chapter: *DNRT* (``book/mechanisms/dnrt``).

    References
    ----------
    Qiu et al. (2024), Dynamic Neural Response Tuning, Eq. 7 and section 4.3.

    Examples
    --------
    >>> import torch, companion
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
    >>> arr = companion.attach_arr(model, "1", num_classes=3, example=(8,), weight=10.0)
    >>> target = torch.tensor([0, 2, 0, 1])
    >>> loss = torch.nn.functional.cross_entropy(model(torch.randn(4, 8)), target) + arr.loss(target)
    >>> loss.backward()
    """
    if hasattr(model, NAME):
        raise ValueError(f"model: got one that has an {NAME!r} already; see detach_arr")
    if example is None:
        raise TypeError(
            "example: got None, allowed is an input of the network or the shape of one example, such as (3, 224, 224): "
            "from it attach_arr learns how long the responses are"
        )
    weight = as_float("weight", weight)
    if not 0 <= weight < float("inf"):
        raise ValueError(f"weight: got {weight}, allowed is a finite number, at least 0")
    if not callable(response) and response not in ("auto", "class_token", "mean"):
        raise ValueError(f"response: got {response!r}, allowed are 'auto', 'class_token', 'mean' or a function")
    if response == "auto":
        ends = {name.rpartition(".")[2] for name, _ in model.named_parameters()}
        response = "class_token" if ends & {"cls_token", "class_token"} else "mean"
    names = _matching(model, [layers] if isinstance(layers, str) else list(layers))
    widths, dims, held = rehearse(model, lambda replica: _widths(replica, names, example, response, num_classes))
    refuse_a_loop(model, NAME, example)
    like = like_of(model)
    arr = ARR(num_classes, sum(widths.values()), momentum, read, init).to(like.device)
    attached = AttachedARR(widths, arr, weight, response, held).train(model.training)
    for name in names:
        model.get_submodule(name).register_forward_hook(_Listener(name, attached, dims[name]))
    model.register_forward_pre_hook(_Beginning(attached))
    model.add_module(NAME, attached)
    return attached


def detach_arr(model: nn.Module) -> nn.Module:
    """Undo `attach_arr`, in the network itself; its means are forgotten.

    Parameters
    ----------
    model : nn.Module
        A network with an ``arr``, or a copy of one.

    Returns
    -------
    nn.Module
        The network.

    Raises
    ------
    ValueError
        If it has none.
    """
    if not isinstance(getattr(model, NAME, None), AttachedARR):
        raise ValueError(f"model: got one without an {NAME!r}, allowed is one that attach_arr has changed")
    for module in model.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            for number, hook in list(hooks.items()):
                if isinstance(hook, (_Beginning, _Listener)) and hook.attached is getattr(model, NAME):
                    del hooks[number]
    delattr(model, NAME)
    return model


def _matching(model: nn.Module, patterns: list[str]) -> list[str]:
    """The names that match, in the order of the network."""
    arr = {module for attached in model.modules() if isinstance(attached, AttachedARR) for module in attached.modules()}
    named = {name: module for name, module in model.named_modules(remove_duplicate=False) if name and module not in arr}
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in named):
            raise ValueError(
                f"layers: got {pattern!r}, allowed are names or patterns such as {', '.join([*named][:5])}"
            )
    names = [name for name in named if any(_matches(name, pattern) for pattern in patterns)]
    standing = Counter(named.values())
    for name in names:
        if (number := standing[named[name]]) > 1:
            raise ValueError(
                f"layers: got {name!r}, which is one {type(named[name]).__name__} at {number} places, whose responses "
                "cannot be told apart; allowed are modules with one place, such as those around it"
            )
    return names


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _widths(
    model: nn.Module, names: list[str], example: Example, response: Response, num_classes: int
) -> tuple[dict[str, int], dict[str, int], dict[str, str]]:
    """How long the responses of these layers are, along which dimension of three they lie, and what is held."""
    outputs: dict[str, Any] = {}
    calls = Counter[str]()

    def keep(output: Any, name: str) -> None:
        outputs[name] = output
        calls[name] += 1

    for name in ("", *names):
        model.get_submodule(name).register_forward_hook(lambda _, __, output, name=name: keep(output, name))
    seen = look(model, example)
    several = {name: f"the last of {number} outputs" for name, number in calls.items() if number > 1}
    if silent := [name for name in names if name not in outputs]:
        raise ValueError(f"layers: got {silent[0]!r}, which the network does not run")
    for name in names if not callable(response) else ():
        _check_layout(name, model.get_submodule(name), outputs[name], seen)
    dims = {name: seen.gives.get(name, -1) for name in names}
    responses = {name: _response(name, outputs[name], response, dims[name]) for name in names}
    words = {
        name: ", ".join(filter(None, (several.get(name), _in_words(outputs[name], response, dims[name]))))
        for name in names
    }
    arguments = example_of(model, example)
    if (count := _count(outputs[""], arguments, num_classes)) is not None:
        _check_rows(responses, outputs, count)
        with contextlib.suppress(Exception):  # a network may want what it was given, and no example more
            more = tree_map(lambda x: torch.cat([x, x[:1]]) if _rows(x) == count else x, arguments)
            call(model, more)
            again = {name: _response(name, outputs[name], response, dims[name]) for name in names}
            count, responses = _count(outputs[""], more, num_classes) or count, again
        _check_rows(responses, outputs, count)
    widths = {name: response.shape[1] for name, response in responses.items()}
    return widths, dims, {name: its for name, its in words.items() if its}


def _in_words(output: Any, response: Response, dim: int) -> str:
    """What of a layer's output is held; nothing if it is all."""
    if callable(response):
        return f"what {getattr(response, '__name__', 'response')} returns"
    if output.ndim == 2:
        return ""
    if output.ndim == 3 and dim == -1:
        number = output.shape[1]
        return f"class token, of {number} tokens" if response == "class_token" else f"mean over {number} tokens"
    return f"mean over {' × '.join(map(str, output.shape[2:]))} places"


def _rows(x: Any) -> int | None:
    return len(x) if isinstance(x, Tensor) and x.ndim else None


def _count(output: Any, arguments: Any, num_classes: int) -> int | None:
    """How many examples a network was given: so its logits (N, K) say, or else the first tensor among its arguments."""
    logits = [x for x in tree_leaves(output) if isinstance(x, Tensor) and x.ndim == 2 and x.shape[1] == num_classes]
    return next((rows for x in (*logits, *tree_leaves(arguments)) if (rows := _rows(x)) is not None), None)


def _check_rows(responses: dict[str, Tensor], outputs: dict[str, Any], count: int) -> None:
    """Refuse responses of anything but the examples, one for each."""
    for name, response in responses.items():
        if len(response) != count:
            given = tuple(outputs[name].shape) if isinstance(outputs[name], Tensor) else type(outputs[name]).__name__
            raise ValueError(
                f"layers: {name!r} gives {given}, which makes {len(response)} responses where the number of examples "
                f"is {count}, allowed is one for each. With the sequence first, build the network with "
                "batch_first=True, or give attach_arr a function as response, such as lambda x: x.mean(0); for rows "
                "of L tokens lambda x: x.unflatten(0, (-1, L))"
            )


def _check_layout(name: str, layer: nn.Module, output: Any, seen: Seen) -> None:
    """Refuse maps with their channels last: so the layer's parameters say, or what came before it, if it has none."""
    sizes = {size for parameter in layer.parameters() for size in parameter.shape} - {1}
    if sizes and any(getattr(module, "dim", None) == 1 for module in layer.modules()):
        return  # it has been told where they are
    shape = tuple(output.shape) if isinstance(output, Tensor) else ()
    if len(shape) < 4:
        return
    gives = seen.gives.get(name)
    if gives == -1 and shape[1] == shape[-1]:
        raise ValueError(
            f"layers: {name!r} gives {shape}, perhaps with its channels last; an example of another size would tell, "
            "and a function as response needs none"
        )
    last = gives == -1 or (shape[1] not in sizes and shape[-1] in sizes)
    if last or (not sizes and name in seen.doubts.keys() - seen.first):
        said = "with its channels last" if last else f"and {seen.channels(name)[1]}"
        means = [
            f"lambda x: x.mean({tuple(range(2 - where, len(shape) - where))})" for where in (0, 1) if where or not last
        ]
        raise ValueError(
            f"layers: {name!r} gives {shape} {said}, allowed are maps (N, d, H, W); attach_arr takes "
            f"a function as response, such as {' or, with them last, '.join(means)}"
        )
