"""One way for all neurons into somebody's network, alone or composed, and back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from companion.neurons import Neuron, declared
from companion.neurons.declaration import Acts
from companion.operators import as_int
from companion.rehearsal import Example, example_of, like_of
from companion.surgery.places import copy_of
from companion.surgery.replacements import Replaced
from companion.surgery.report import parameters, put_report, refuse_taken

__all__ = ["Entered", "Rethought", "extra_loss", "rethink", "undo"]

NAME = "rethought"
"""Under which a network has the report."""


@dataclass(frozen=True)
class Entered:
    """What one neuron did to a network.

    Parameters
    ----------
    name, title : str
        Of the neuron.
    report : str
        What stands where now, what stays and why.
    parameters : (int, int)
        How many the network had before, and has now.
    """

    name: str
    title: str
    report: str
    parameters: tuple[int, int]
    _before: nn.Module | None = field(default=None, repr=False, compare=False)
    _replaced: object = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Rethought:
    """What `rethink` did to a network; ``print`` shows it.

    Parameters
    ----------
    entered : tuple of Entered
        One for each neuron, in the order in which they entered.
    """

    entered: tuple[Entered, ...]

    @property
    def neurons(self) -> tuple[str, ...]:
        """The names."""
        return tuple(each.name for each in self.entered)

    @property
    def decay(self) -> Literal["all", "kernels"]:
        """Which parameters are to be decayed, as `companion.parameter_groups` wants it."""
        return "kernels" if any(declared()[name].decay == "kernels" for name in self.neurons) else "all"

    def __str__(self) -> str:
        """Return a paragraph for each neuron, the number of parameters, and how to train the network."""
        lines = []
        for each in self.entered:
            lines += [f"{each.title} ({each.name})", *(f"  {line}" for line in each.report.splitlines())]
        (before, _), (_, now) = self.entered[0].parameters, self.entered[-1].parameters
        lines.append(f"parameters: {before:,} → {now:,}")
        if self.decay != "all":
            lines.append(f'weight decay: parameter_groups(model, ..., decay="{self.decay}")')
        if any(declared()[name].loss for name in self.neurons):
            lines.append("loss: add extra_loss(model, target)")
        return "\n".join(lines)


def rethink(
    model: nn.Module,
    neurons: str,
    example: Example,
    num_classes: int | None = None,
    *,
    held: str | Iterable[str] | None = None,
    weight: float | None = None,
    response: Literal["auto", "class_token", "mean"] | Callable[[Tensor], Tensor] | None = None,
) -> nn.Module:
    """Return a copy of a network with other neurons.

    Parameters
    ----------
    model : nn.Module
        Any network. It stays as it is.
    neurons : str
        A name, or several with "+" between them, in any order. What **units** are activated by: "aglu", "la_silu",
        "la_hardsilu", "raa", "one_argument", and to compare with "relu", "gelu", "silu", "mish", "prelu", "swish" (with
        a learned slope). Of two arguments: "two_arguments" and "quadratic", learned, and "glu", "geglu", "swiglu",
        "maxout". What **gates** are: "apa". What stands **before** an activation: "norm", "extra_linear". What
        **connections** do with it: "dac", "multibias". What is added to the **loss**: "arr", "centre". DNRT is
        "raa+arr".
    example : Tensor, sequence of int, tuple or mapping
        An input, the shape of one example without the batch, such as (C, H, W), or all arguments.
    num_classes : int, optional
        How many there are; "arr" and "centre" have to know.
    held : str or iterable of str, optional
        The modules whose responses "arr" holds, by names or patterns as in `companion.attach_arr`; by default the
        activations of all units, and of one that is called several times its last output. In a vision
        transformer the paper takes the blocks: "blocks.*" in timm's.
    weight : float, optional
        λ, by which the loss of "arr" or "centre" is multiplied; by default 1 and 0.003.
    response : {"auto", "class_token", "mean"} or callable, optional
        What "arr" takes of the output of each module, as in `companion.attach_arr`; by default "auto". It knows neither
        what the network's head reads nor which tokens are padding, and averages over all: for BERT, whose head reads
        the first token, say "class_token", and "mean" where a vision transformer pools. ``print(model.arr)`` shows what
        is held.

    Returns
    -------
    nn.Module
        The network, with new weights from torch's global generator where there are any. Its attribute ``rethought``, a
        `Rethought`, says what was done and what it costs; ``print`` shows it. `undo` takes it back, also after saving.
        After "dac" and "multibias" it is a ``torch.fx.GraphModule`` that does what ``forward`` does: other methods,
        properties and attributes of the network's class are gone. Each such network is of a class of its own, so
        that ``torch.func.stack_module_state`` stacks none of them. Where "dac" takes over an activation that has no
        name in `companion.functional.dac_linear`, such as AGLU, ``torch.compile(..., fullgraph=True)`` is impossible.

    Raises
    ------
    TypeError
        If the model is no module, or a scripted one, the example is none of what is allowed, or `num_classes` is no
        int.
    ValueError
        If a name is unknown, `num_classes` is not positive, the neurons do not go together, one that needs labels has
        no classes, the network was rethought already or has an attribute of its own where a report would stand, a
        neuron finds no place in it, or `held`, `weight` and `response` have no loss that they could be about, or two.
        The error gives the reason.

    Notes
    -----
    Widths stay as they are: with neurons of two arguments, DAC or multi-bias the network has more parameters than
    before, as the report says. Units are those activated by ReLU, GELU, SiLU and their relatives, as modules or as
    functions, see `companion.replace_activations`. A module that calls functions keeps them where its forward has
    optional arguments or asks for ``len(x)``, and the report says so. For two arguments see `companion.to_units`, for
    DAC `companion.to_dac`, for ARR `companion.attach_arr`.

    *What goes together.* One neuron decides what units are activated by, one what gates are, one what connections do;
    what stands before an activation, and losses, may be several. DAC and multi-bias take activations of one number
    alone. After them a unit gives one response to each connection, or several, so that ARR and centre loss have none to
    hold. The order of the names does not matter, but for what stands before an activation: the first one named is the
    first to act.

    *Causal networks.* "la_silu", "la_hardsilu" and "norm" see one token alone where the features lie last. Behind 1-D
    convolutions they see all positions, those to come, too.

    *Hooks* of an activation go over to what takes its place; where DAC or multi-bias takes the activation away, they go
    with it. All hooks run on the example, too: one that keeps something, such as a mean, should do so in training
    alone. See `companion.replace_activations`.

    *Losses* ("arr", "centre") are modules of the network: of an ``nn.Sequential`` the last child, which ``len(model)``
    and ``model[:-1]`` count.

    *Threads.* "dac", "multibias" and what replaces functions trace with torch.fx. That is not safe beside other threads
    that trace or run networks meanwhile; the package itself traces in one thread at a time.

    *What is shared.* All units have one activation with "two_arguments", "quadratic" and "one_argument": a module in
    each place, with the same parameters in all. ``to_empty``, and a move to the meta device, give each place its own;
    ``load_state_dict`` makes them the same again. What goes over the state dict meets them once for each place:
    ``save_pretrained`` of transformers refuses them, and timm's ``ModelEmaV3`` averages them as often, which
    ``torch.optim.swa_utils.AveragedModel`` does not. ``fully_shard`` takes them with all their places at once, and not
    layer by layer.

    *Saved and loaded.* ``from_pretrained`` of transformers builds the network from its configuration, which names the
    old activation, and gives this the new network's weights without an error: rethink a network that was built so, and
    load the state dict into it.

    The state dict of the new network goes into one that was made in the same way from the same network. Add
    `extra_loss` to the loss, and give the optimiser ``parameter_groups(model, weight_decay, model.rethought.decay)``.

    Examples
    --------
    >>> import torch, companion
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> new = companion.rethink(model, "dac+aglu", example=(8,), num_classes=3)
    >>> print(new.rethought)
    AGLU (aglu)
      ReLU → AGLU(num_parameters=1, dim=1, init='aglu'): '1'
    DAC (dac)
      Linear → DACLinear: '2'
    parameters: 195 → 229
    weight decay: parameter_groups(model, ..., decay="kernels")
    >>> x = torch.randn(5, 8)
    >>> new(x).shape, torch.equal(companion.undo(new)(x), model(x))
    (torch.Size([5, 3]), True)
    """
    chosen = _told(_chosen(neurons), held, weight, response)
    num_classes = None if num_classes is None else as_int("num_classes", num_classes, minimum=1)
    if why := _why_not(chosen, num_classes):
        raise ValueError(f"neurons: got {neurons!r}, but {why}")
    new, entered = copy_of(model), list[Entered]()
    refuse_taken(model, NAME, Rethought)
    if isinstance(vars(model).get(NAME), Rethought):
        names = "+".join(vars(model)[NAME].neurons)
        raise ValueError(f"model: got one that was rethought as {names!r}, allowed is one that was not; see undo")
    example_of(model, example)  # not every neuron looks at it, and a wrong one is always wrong
    # of those that stand before an activation the last one enters first: each comes before those that are there
    for neuron in [neuron for acts in get_args(Acts) for neuron in reversed(chosen) if neuron.acts == acts]:
        before = new
        number = parameters(before)
        try:
            new = neuron.enter(before, example, num_classes)
        except ValueError as error:
            raise ValueError(f"neurons: {neuron.name!r} cannot enter this {type(model).__name__}; {error}") from error
        report = _report(new, neuron)
        kept = before if neuron.leave is None else None
        replaced = None if neuron.leave is None or neuron.loss is not None else vars(new)["replaced"]
        entered.append(Entered(neuron.name, neuron.title, report, (number, parameters(new)), kept, replaced))
    put_report(new, NAME, Rethought(tuple(entered)))
    return new


def undo(model: nn.Module) -> nn.Module:
    """Undo `rethink`: in the network itself where that can be, and after "dac" by the old one, which the report keeps.

    Parameters
    ----------
    model : nn.Module
        What `rethink` returned, or a copy, as from a pickle.

    Returns
    -------
    nn.Module
        The network with the neurons that it had: the same object where that can be, with what its other parameters
        have learned since. After DAC and multi-bias it is the one that was there before, as it was: biases of
        connections have no place in it. Hooks and modules that were added since then are lost in this case.

    Raises
    ------
    ValueError
        If the network was not rethought, or stands in a wrapper, such as DistributedDataParallel, or its activations
        were replaced once more since then. Nothing is changed then.

    Examples
    --------
    >>> import companion
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.GELU())
    >>> companion.undo(companion.rethink(model, "swish", example=(3,)))
    Sequential(
      (0): Linear(in_features=3, out_features=4, bias=True)
      (1): GELU(approximate='none')
    )
    """
    report, given = _report_of(model), model
    on_top = itertools.takewhile(lambda each: each._before is None, reversed(report.entered))
    made = next((each._replaced for each in on_top if each._replaced is not None and not _is_restored(each)), None)
    if made is not None and vars(model).get("replaced") is not made:
        raise ValueError(
            f"model: got a {type(model).__name__} whose activations were replaced since rethink, allowed is "
            "one in which its neurons stand; see restore_activations"
        )
    like = like_of(model)
    for each in reversed(report.entered):
        leave = declared()[each.name].leave
        if declared()[each.name].loss is not None and each.name not in model._modules:
            continue  # as after detach_arr
        if _is_restored(each):
            continue
        if leave is not None:
            model = leave(model)
        else:
            assert each._before is not None
            model = each._before.to(like).train(model.training)
    delattr(given, NAME)
    return model


def _is_restored(entered: Entered) -> bool:
    """Whether `restore_activations` was there before."""
    return isinstance(entered._replaced, Replaced) and not entered._replaced._undo


def extra_loss(model: nn.Module, target: Tensor) -> Tensor:
    """Return what the neurons of a network add to its loss.

    Parameters
    ----------
    model : nn.Module
        What `rethink` returned, or ``torch.compile`` or DistributedDataParallel of it, after a forward pass in training
        mode.
    target : Tensor
        (N,), the class of each example.

    Returns
    -------
    Tensor
        0-d: the sum over all neurons that add something, or 0.

    Raises
    ------
    ValueError
        If the network was not rethought.
    RuntimeError
        If it did not run in training mode since the last call, or if what "arr" or "centre" holds ran without
        gradients, as in a checkpoint that has not ``use_reentrant=False``.

    Examples
    --------
    >>> import torch, companion
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> model = companion.rethink(model, "raa+arr", example=(8,), num_classes=3)
    >>> target = torch.tensor([0, 2, 0, 1])
    >>> loss = nn.functional.cross_entropy(model(torch.randn(4, 8)), target) + companion.extra_loss(model, target)
    >>> loss.backward()
    """
    model = _inside(model)[0]
    losses = [loss for name in _report_of(model).neurons if (loss := declared()[name].loss) is not None]
    return sum((loss(model, target) for loss in losses), start=torch.zeros((), device=target.device))


# --- what goes together ------------------------------------------------------------------------------------------

#: What only one neuron may decide.
_DECIDED = {"unit": "what units are activated by", "gate": "what gates are", "connection": "what connections do"}


def _chosen(neurons: str) -> list[Neuron]:
    """The neurons of a composition, or a clear error."""
    if not isinstance(neurons, str):
        raise TypeError(f"neurons: got {type(neurons).__name__}, allowed are names such as 'aglu' or 'dac+aglu'")
    spelt = {name.replace("_", ""): neuron for name, neuron in declared().items()}
    names = [name.strip().lower().replace("-", "").replace("_", "") for name in neurons.split("+")]
    if unknown := [name for name in names if name not in spelt]:
        raise ValueError(f"neurons: got {unknown[0]!r}, allowed are {', '.join(declared())}; DNRT is 'raa+arr'")
    return [spelt[name] for name in names]


def _told(neurons: list[Neuron], held: str | Iterable[str] | None, weight: float | None, response: Any) -> list[Neuron]:
    """The neurons, of which a loss knows what it holds and how much it counts."""
    if held is None and weight is None and response is None:
        return neurons
    losses = [neuron.name for neuron in neurons if neuron.acts == "loss"]
    if len(losses) != 1:
        got = " and ".join(losses) or "none"
        told = f"held, weight: got {held!r} and {weight}" if response is None else f"response: got {response!r}"
        raise ValueError(f"{told}, allowed beside one loss, 'arr' or 'centre'; of these there is {got}")
    return [neuron.holding(held, weight, response) if neuron.acts == "loss" else neuron for neuron in neurons]


def _why_not(neurons: Sequence[Neuron], num_classes: int | None) -> str:
    """Why some neurons do not go together; empty if they do."""
    for index, one in enumerate(neurons):
        if one.needs_labels and num_classes is None:
            return f"{one.title} has to know how many classes there are; num_classes is None"
        for other in neurons[:index]:
            if one.name == other.name:
                return f"{one.name!r} is there twice"
            if one.acts == other.acts and one.acts in _DECIDED:
                return f"both {other.title} and {one.title} decide {_DECIDED[one.acts]}"
            for connection, unit in ((one, other), (other, one)):
                if connection.acts == "connection" and unit.acts == "unit" and not unit.elementwise:
                    return f"{connection.title} takes activations of one number alone, and {unit.title} sees several"
            for loss, channels in ((one, other), (other, one)):
                if loss.acts == "loss" and not channels.keeps_channels:
                    return f"{loss.title} holds one response of each unit, and with {channels.title} it has several"
    return ""


# --- reports -----------------------------------------------------------------------------------------------------


def _report(model: nn.Module, neuron: Neuron) -> str:
    """What a neuron's own report says, without the number of parameters."""
    if neuron.loss is not None:
        return model.get_submodule(neuron.name).extra_repr()
    said = vars(model)["replaced" if neuron.leave is not None else "converted"]
    return "\n".join(line for line in str(said).splitlines() if not line.startswith("parameters: "))


def _report_of(model: nn.Module) -> Rethought:
    report = vars(model).get(NAME)
    if isinstance(report, Rethought):
        return report
    inside, way = _inside(model)
    said = f"around a network that was rethought, allowed is the network itself: model{way}"
    raise ValueError(
        f"model: got a {type(model).__name__} "
        + (said if NAME in vars(inside) else "that was not rethought, allowed is what rethink returned")
    )


def _inside(model: nn.Module) -> tuple[nn.Module, str]:
    """The network that wrappers were put around after it was rethought, and the attributes that lead to it."""
    way = ""
    while NAME not in vars(model):
        name = next((n for n in ("_orig_mod", "module") if isinstance(getattr(model, n, None), nn.Module)), None)
        if name is None:
            break
        model, way = getattr(model, name), f"{way}.{name}"
    return model, way
