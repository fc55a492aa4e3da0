"""What a neuron declares: how it enters a network and leaves it, what it does there, and what may stand beside it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

from companion import rooms
from companion.activations import UNITS, kind_of
from companion.baselines import Preceded
from companion.rehearsal import Example, like_of
from companion.surgery import replace_activations, restore_activations, to_units
from companion.surgery.functions import Called
from companion.surgery.places import copied
from companion.surgery.rules import rule_of

__all__ = [
    "Acts",
    "Enter",
    "Holding",
    "Neuron",
    "Replacing",
    "Widening",
    "declared",
    "of_module",
    "preceding",
    "units_of",
]

#: Where a neuron acts, in the order in which those of a composition enter.
Acts: TypeAlias = Literal["unit", "gate", "before", "connection", "loss"]

#: A network that may be changed, an example, the number of classes → the network.
Enter: TypeAlias = Callable[[nn.Module, Example, int | None], nn.Module]


@dataclass(frozen=True)
class Neuron:
    """How a neuron enters somebody's network, and what is true of it whatever it learns.

    Parameters
    ----------
    name : str
        As `companion.rethink` takes it.
    title : str
        As tables and figures call it.
    acts : {"unit", "gate", "before", "connection", "loss"}
        What it replaces or adds: the activation of units, that of gates, something before an activation, what the
        connections behind a unit do, or a term of the loss.
    enter : callable
        Takes the network, which it may change, an example as in `companion.replace_activations`, and the number of
        classes or None; returns the network.
    leave : callable, optional
        Undoes it. None: the network that was there before has to be kept.
    loss : callable, optional
        The network, after a forward pass in training mode, and the targets → a number to add to the loss.
    modules : tuple of type
        Of the modules that it puts in, those whose output is the response of units or gates.
    arity : int
        Arguments of a unit.
    elementwise : bool
        It is a function of one number alone.
    keeps_channels : bool
        Each channel of the network still has one response.
    monotone : bool
        It nowhere falls.
    zero_at_zero : bool
        It is 0 at 0.
    needs_labels : bool
        It has to know how many classes there are, and the class of each example.
    decay : {"all", "kernels"}
        Which parameters of its network are decayed, as `companion.parameter_groups` wants it; what modules exempt in
        ``no_weight_decay`` is spared in any case.

    Examples
    --------
    >>> tanh = Neuron("tanh", "tanh", "unit", Replacing(nn.Tanh), elementwise=True, monotone=True, zero_at_zero=True)
    >>> tanh.enter(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), (2,), None)[1]
    Tanh()
    """

    name: str
    title: str
    acts: Acts
    enter: Enter
    leave: Callable[[nn.Module], nn.Module] | None = restore_activations
    loss: Callable[[nn.Module, Tensor], Tensor] | None = None
    modules: tuple[type[nn.Module], ...] = ()
    arity: int = 1
    elementwise: bool = False
    keeps_channels: bool = True
    monotone: bool = False
    zero_at_zero: bool = False
    needs_labels: bool = False
    decay: Literal["all", "kernels"] = "all"

    def places(self) -> Callable[[int, int], nn.Module]:
        """Return what makes this activation for each place of one network that is built around it.

        It takes the number of channels and the dimension along which they lie. A network that is there the activation
        enters.

        Examples
        --------
        >>> place = declared()["raa"].places()
        >>> place(8, 1)
        RAA(8, gate='gelu', dim=1)
        """
        if not isinstance(self.enter, Replacing):
            raise TypeError(f"{self.title} is no activation")
        rule = rule_of(self.enter.begin())

        def place(channels: int, dim: int) -> nn.Module:
            told = {"channels": channels, "dim": dim}
            return rule.make(**{name: told[name] for name in rule.wants})

        return place

    def holding(
        self, held: str | Iterable[str] | None = None, weight: float | None = None, response: Any = None
    ) -> Neuron:
        """Return a loss that holds something else, or with another weight.

        Parameters
        ----------
        held : str, iterable of str, optional
            As in `Holding`; None: what it holds of itself.
        weight : float, optional
            λ; None: its own.
        response : str or callable, optional
            What of it represents an example, as in `companion.attach_arr`; None: what the loss takes of itself.

        Raises
        ------
        ValueError
            If it cannot hold anything else.

        Examples
        --------
        >>> declared()["arr"].holding("blocks.*", weight=10.0).enter.weight
        10.0
        """
        assert isinstance(self.enter, Holding)
        if held is not None and not self.enter.movable:
            raise ValueError(f"held: got {held!r}, allowed is None: {self.title} has its own place in a network")
        if response is not None and not self.enter.movable:
            raise ValueError(f"response: got {response!r}, allowed is None: {self.title} takes what its layer sees")
        enter = self.enter if held is None else replace(self.enter, held=held)
        if response is not None:
            enter = replace(enter, attach=functools.partial(enter.attach, response=response))
        return replace(self, enter=enter if weight is None else replace(enter, weight=weight))


@functools.cache
def declared() -> dict[str, Neuron]:
    """Return all neurons by name: the ``NEURONS`` of every room's module ``neuron``, then those to compare with.

    Examples
    --------
    >>> declared()["aglu"].title, declared()["relu"].monotone
    ('AGLU', True)
    """
    controls = importlib.import_module("companion.neurons.controls")
    return {
        neuron.name: neuron for module in (*rooms.modules("neuron").values(), controls) for neuron in module.NEURONS
    }


def of_module(module: nn.Module) -> Neuron | None:
    """Return the neuron that puts such a module into a network.

    Examples
    --------
    >>> from companion import MultiArgument
    >>> of_module(MultiArgument(2)).name, of_module(nn.Linear(2, 2))
    ('two_arguments', None)
    """
    arity = getattr(module, "arity", 1)
    return next((n for n in declared().values() if type(module) in n.modules and n.arity == arity), None)


def units_of(model: nn.Module) -> list[str]:
    """Return the names of the modules that give the responses of a network's units.

    Examples
    --------
    >>> units_of(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Sigmoid()))
    ['1']
    """
    found: list[str] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found) or "parametrizations" in name.split(".")
        if not inside and _is_unit(module):
            found.append(name)
    return found


def _is_unit(module: nn.Module) -> bool:
    kind = module.kind if isinstance(module, Called) else kind_of(module)
    ours = (n.modules for n in declared().values() if n.acts in ("unit", "before"))
    return kind in UNITS or any(isinstance(module, kinds) for kinds in ours)


@dataclass(frozen=True)
class Replacing:
    """How an activation of one argument enters: in the place of the activations of some kinds.

    Parameters
    ----------
    make : callable
        Makes the module, as in `companion.replace_activations`.
    kinds : iterable of str
        Names such as "relu".
    shared : bool
        All places of a network share the parameters of one module, and each has a ``dim`` of its own.
    """

    make: Callable[..., nn.Module]
    kinds: Iterable[str] = UNITS
    shared: bool = False

    def begin(self, like: Tensor | None = None) -> Callable[..., nn.Module]:
        """Return what makes the modules of one network, as in `companion.replace_activations`.

        A tensor says on which device and in which dtype parameters are that all places share.
        """
        if not self.shared:
            return self.make
        # each place that was moved to the meta device by itself would have parameters of its own
        one, tie = self.make().to(like), _Tie()
        one.register_load_state_dict_post_hook(tie)  # type: ignore[no-untyped-call]

        def place(channels: int, dim: int) -> nn.Module:
            new = copied(one)
            new.dim = dim  # type: ignore[assignment]
            tie.places.append(new)
            return new

        return place

    def __call__(self, model: nn.Module, example: Example, classes: int | None) -> nn.Module:
        """Let it enter."""
        begin = self.begin(like_of(model))
        return replace_activations(model, dict.fromkeys(self.kinds, begin), example, inplace=True)


class _Tie:
    """Lets all places of a shared activation have the parameters of the one that was loaded last.

    What was loaded may be new parameters, and on the meta device each place may have got its own.
    """

    def __init__(self) -> None:
        self.places: list[nn.Module] = []

    def __call__(self, loaded: nn.Module, keys: object) -> None:
        for place in self.places:
            for its, own in zip(place.modules(), loaded.modules(), strict=True):
                its._parameters.update(own._parameters)


class Widening(Replacing):
    """How an activation of several arguments enters: the layers before it are widened, see `to_units`."""

    def __call__(self, model: nn.Module, example: Example, classes: int | None) -> nn.Module:
        """Let it enter."""
        return to_units(model, self.begin(like_of(model)), example, inplace=True)


@dataclass(frozen=True)
class Holding:
    """How a loss enters that holds responses of a network to their class.

    Parameters
    ----------
    attach : callable
        Takes the network, an example, the number of classes, the names of what is held and the weight; if movable,
        also ``response``.
    held : str, iterable of str, optional
        Names of modules, or patterns, as in `companion.attach_arr`. None: what the loss holds of itself.
    weight : float
        λ.
    movable : bool
        Whether it can hold anything else.
    """

    attach: Callable[..., object]
    held: str | Iterable[str] | None = None
    weight: float = 1.0
    movable: bool = True

    def __call__(self, model: nn.Module, example: Example, classes: int | None) -> nn.Module:
        """Let it enter."""
        assert classes is not None
        self.attach(model, example, classes, self.held, self.weight)
        return model


def preceding(make: Callable[[int, int], nn.Module]) -> Enter:
    """Return how something enters before the activations of units, whatever these are.

    Parameters
    ----------
    make : callable
        The number of channels and their dimension → the module.
    """

    def preceded(old: nn.Module, channels: int, dim: int) -> nn.Module:
        return Preceded(make(channels, dim), old)

    def enter(model: nn.Module, example: Example, classes: int | None) -> nn.Module:
        ours = [kind for neuron in declared().values() if neuron.acts in ("unit", "before") for kind in neuron.modules]
        return replace_activations(model, dict.fromkeys((*UNITS, *ours), preceded), example, inplace=True)

    return enter
