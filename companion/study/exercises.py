"""Says what is wrong with a reader's answer, and never the answer.

A page asks, a reader answers: ``check("dnrt-1", -1.0)``. A room declares its exercises in a module ``exercises``, and
so does the ground. The right answer is not stored there but computed, by the package's own functions or from the
registry.

An answer is a number, a tensor, a function (or module) that is called on drawn arguments, or a SymPy expression in the
names of these arguments.
"""

from __future__ import annotations

import inspect
import itertools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from companion import rooms

__all__ = ["Exercise", "Verdict", "check"]


@dataclass(frozen=True)
class Verdict:
    """What is said about an answer; true if it is right."""

    right: bool
    text: str

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Exercise:
    """A question, as its checker knows it.

    Parameters
    ----------
    id : str
        The page and a number: "dnrt-derivation-2".
    reference : callable
        Returns the right answer. Its parameters are those of the function that is asked for; without any, a number or
        tensor is asked for.
    points : callable, optional
        Draws the arguments that answers are tried with; some of them special, so that it can be said where an answer is
        right. Sizes differ from each other and from point to point.
    mistakes : dict
        What to say about an answer that equals the result of a function: words → function. It has the parameters of the
        reference.
    evaluate : callable, optional
        Puts the arguments into a SymPy expression, where it takes more than to put them in the place of symbols of
        their names. What it does not know it leaves.
    names : str
        What such an expression may have, in words.
    tolerance : float
        The largest difference from the right answer, as a share of its largest element.
    differentiable : bool
        Whether the gradient of the answer's sum must be right, too.
    """

    id: str
    reference: Callable[..., Any]
    points: Callable[[], Iterable[tuple[Any, ...]]] | None = None
    mistakes: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    evaluate: Callable[..., Any] | None = None
    names: str = ""
    tolerance: float = 1e-5
    differentiable: bool = False

    @property
    def parameters(self) -> list[str]:
        """Names of what the function that is asked for takes, as those of the reference that must be given."""
        parameters = inspect.signature(self.reference).parameters.values()
        return [each.name for each in parameters if each.default is each.empty]


def exercises() -> dict[str, Exercise]:
    """All exercises of all rooms and chapters, by their ids."""
    return {each.id: each for module in rooms.studies("exercises").values() for each in module.EXERCISES}


def check(id: str, answer: Any) -> Verdict:
    """Say what is wrong with an answer.

    Parameters
    ----------
    id : str
        As the page gives it.
    answer : number, Tensor, callable, SymPy expression
        ``...`` stands for none.

    Returns
    -------
    Verdict
        Its text is what a notebook shows; true if the answer is right.

    Raises
    ------
    ValueError
        If there is no such exercise; the message lists those of the page.

    Examples
    --------
    >>> check("dnrt-1", ...)
    No answer yet: replace the three dots.
    >>> check("dnrt-1", "minus two")
    This is of type str; asked is a number.
    """
    known = exercises()
    if id not in known:
        page = id.rpartition("-")[0]
        near = [name for name in known if name.rpartition("-")[0] == page]
        raise ValueError(f"id: got {id!r}, allowed are {', '.join(near or known)}")
    try:
        fault = _fault(known[id], answer)
    except _UnreadableError as unreadable:
        fault = str(unreadable)
    return Verdict(True, "Right.") if fault is None else Verdict(False, fault)


class _UnreadableError(Exception):
    """An answer that gives no numbers to compare; the message is for the reader."""


NO_ANSWER = "No answer yet: replace the three dots."


def _fault(exercise: Exercise, answer: Any) -> str | None:
    """What is wrong with an answer, None if nothing is."""
    function = _as_function(exercise, answer)
    points = [()] if exercise.points is None else list(exercise.points())
    wanted = [_as_tensor(exercise.reference(*_copies(point))) for point in points]
    try:
        fault = _fault_of(exercise, function, points, wanted)
    except _UnreadableError:
        # with arguments in the wrong places much can fail
        if words := _exchanged(exercise, function, points, wanted):
            raise _UnreadableError(words) from None
        raise
    return fault


def _fault_of(
    exercise: Exercise, function: Callable[..., Any], points: Sequence[tuple[Any, ...]], wanted: Sequence[Tensor]
) -> str | None:
    """What is wrong with a function that can be called."""
    found = []
    for point, right in zip(points, wanted, strict=True):
        value = _value(function, point)
        if fault := _wrong_form(value, right):
            # a known mistake may have another shape
            found = [_as_tensor(_value(function, each)) for each in points]
            return _known_mistake(exercise, points, found) or _exchanged(exercise, function, points, wanted) or fault
        found.append(_as_tensor(value).double().reshape(right.shape))
    if _equal(found, wanted, exercise.tolerance):
        return _fault_of_gradient(exercise, function, points) if exercise.differentiable else None
    return (
        _known_mistake(exercise, points, found)
        or _exchanged(exercise, function, points, wanted)
        or _wrong_values(exercise, points, found, wanted)
    )


def _fault_of_gradient(
    exercise: Exercise, function: Callable[..., Any], points: Sequence[tuple[Any, ...]]
) -> str | None:
    """What is wrong with the gradient of an answer whose values are right."""
    for point in points:
        one, other = (_gradients(each, point) for each in (function, exercise.reference))
        if one is None:
            return "Its values are right, and it has no gradient: compute with torch, and detach nothing."
        if any(bool((a.isnan() & ~b.isnan()).any()) for a, b in zip(one, other or [], strict=True)):
            return (
                "Its values are right, and its gradient is NaN: what does not count has to leave before the "
                "computation, and not only its result."
            )
        if not _equal(one, other or [], exercise.tolerance):
            return "Its values are right, and its gradient is not."
    return None


def _gradients(function: Callable[..., Any], point: tuple[Any, ...]) -> list[Tensor] | None:
    """Of the sum of a function, by its floating arguments; None where autograd does not see it."""
    given = _copies(point)
    floating = [each.requires_grad_() for each in given if isinstance(each, Tensor) and each.is_floating_point()]
    value = function(*given)
    if not (isinstance(value, Tensor) and value.requires_grad):
        return None
    gradients = torch.autograd.grad(value.sum(), floating, allow_unused=True, materialize_grads=True)
    return list(gradients)


def _exchanged(
    exercise: Exercise, function: Callable[..., Any], points: Sequence[tuple[Any, ...]], wanted: Sequence[Tensor]
) -> str | None:
    """Whether the answer is right as soon as two of its arguments change places."""
    for one, other in itertools.combinations(range(len(exercise.parameters)), 2):
        order = list(range(len(exercise.parameters)))
        order[one], order[other] = other, one
        try:
            found = [_as_tensor(_value(function, tuple(point[at] for at in order))) for point in points]
        except _UnreadableError:
            continue
        if _equal(found, wanted, exercise.tolerance):
            names = exercise.parameters
            return f"Two arguments have changed places: {names[one]} and {names[other]}."
    return None


# --- what an answer is, and what it gives ---------------------------------------------------------------------------


def _as_function(exercise: Exercise, answer: Any) -> Callable[..., Any]:
    """The answer as a function of the exercise's parameters."""
    names = exercise.parameters
    asked = f"a function of ({', '.join(names)})" if names else "a number"
    if answer is None or answer is ...:
        raise _UnreadableError(NO_ANSWER)
    if hasattr(answer, "free_symbols"):  # SymPy's
        return lambda *point: _number(exercise, (exercise.evaluate or partial(_put_in, names))(answer, *point))
    is_number = isinstance(answer, numbers.Number | Tensor) or hasattr(answer, "__array__")
    if is_number and not names:
        return lambda: answer
    if callable(answer) and names and not is_number:
        return _taking(answer, len(names), asked)
    if callable(answer) and not is_number:
        raise _UnreadableError(f"This is a function; asked is {asked}.")
    raise _UnreadableError(f"This is of type {type(answer).__name__}; asked is {asked}.")


def _taking(function: Callable[..., Any], count: int, asked: str) -> Callable[..., Any]:
    """The function, if it takes so many arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        raise _UnreadableError(f"It does not take {count} arguments; asked is {asked}.") from None
    except ValueError:  # a builtin that does not say what it takes
        pass
    return function


def _put_in(names: Sequence[str], expression: Any, *point: Any) -> Any:
    """The value of a SymPy expression whose symbols bear the names of the arguments."""
    values = dict(zip(names, point, strict=True))
    return expression.subs({each: values[each.name] for each in expression.free_symbols if each.name in values})


def _number(exercise: Exercise, expression: Any) -> float:
    """What is left of a SymPy expression after everything known has been put in."""
    if foreign := sorted(str(symbol) for symbol in expression.free_symbols):
        allowed = exercise.names or ", ".join(exercise.parameters) or "none"
        raise _UnreadableError(f"The formula has the symbol {foreign[0]}; it may have {allowed}.")
    return float(expression)


def _copies(point: Iterable[Any]) -> list[Any]:
    """Arguments that a function may change."""
    return [each.clone() if isinstance(each, Tensor) else each for each in point]


def _value(function: Callable[..., Any], point: tuple[Any, ...]) -> Any:
    """What the answer gives for some arguments: a number or tensor."""
    given = _copies(point)
    try:
        value = function(*given)
    except _UnreadableError:
        raise
    except Exception as error:
        raise _UnreadableError(f"It fails with {type(error).__name__}: {error}") from error
    if value is ...:
        raise _UnreadableError(NO_ANSWER)
    if value is None:
        raise _UnreadableError("It returns None: is there a return?")
    if isinstance(value, bool | complex) or not (
        isinstance(value, numbers.Number | Tensor) or hasattr(value, "__array__")
    ):
        raise _UnreadableError(f"It gives a {type(value).__name__}; asked is a number or a tensor.")
    for name, before, after in zip(itertools.count(1), point, given, strict=False):
        if isinstance(before, Tensor) and not torch.equal(before, after.detach()):
            raise _UnreadableError(f"It changes argument {name}; leave it as it is, and return something new.")
    return value


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    return torch.as_tensor(value if hasattr(value, "__array__") else float(value))


def _wrong_form(value: Any, right: Tensor) -> str | None:
    """What is wrong with the dtype or the shape."""
    result = _as_tensor(value)
    if isinstance(value, Tensor) and right.ndim and value.dtype != right.dtype:
        return f"Its dtype is {value.dtype}; asked is {right.dtype}, that of the arguments."
    if result.shape == right.shape or result.numel() == right.numel() == 1:
        return None
    if result.ndim > 1 and result.mT.shape == right.shape:
        return f"It is transposed: its shape is {tuple(result.shape)}, asked is {tuple(right.shape)}."
    asked = tuple(right.shape) if right.ndim else "one number"
    difference = "too many" if result.ndim > right.ndim else "missing"
    of_size_one = result.ndim != right.ndim and result.squeeze().shape == right.squeeze().shape
    remark = f": a dimension of size one is {difference}" if of_size_one else ""
    return f"Its shape is {tuple(result.shape)}; asked is {asked}{remark}."


# --- what is wrong with its values ------------------------------------------------------------------------------------


def _close(found: Tensor, wanted: Tensor, tolerance: float) -> Tensor:
    """Of each element, whether it is right."""
    scale = wanted[wanted.isfinite()].abs().max().item() if wanted.isfinite().any() else 0.0
    return torch.isclose(found.double(), wanted.double(), rtol=0.0, atol=tolerance * (scale or 1.0), equal_nan=True)


def _equal(found: Sequence[Tensor], wanted: Sequence[Tensor], tolerance: float) -> bool:
    return all(
        one.shape == other.shape and bool(_close(one, other, tolerance).all())
        for one, other in zip(found, wanted, strict=True)
    )


def _known_mistake(exercise: Exercise, points: Sequence[tuple[Any, ...]], found: Sequence[Tensor]) -> str | None:
    for words, mistake in exercise.mistakes.items():
        if _equal(found, [_as_tensor(mistake(*_copies(point))) for point in points], exercise.tolerance):
            return words
    return None


def _wrong_values(
    exercise: Exercise, points: Sequence[tuple[Any, ...]], found: Sequence[Tensor], wanted: Sequence[Tensor]
) -> str:
    where = partial(_where, exercise.parameters, points)
    lost = [bool((one.isnan() & ~other.isnan()).any()) for one, other in zip(found, wanted, strict=True)]
    if any(lost):
        return f"It is NaN{where(lost)}."
    is_function = exercise.points is not None
    if is_function and not any(bool(each.any()) for each in found):
        return "It is zero everywhere."
    for factor, words in FACTORS.items():
        for sign in (1, -1):
            if _equal(found, [sign * factor * right for right in wanted], exercise.tolerance):
                return " ".join(
                    [*(["The sign is wrong."] if sign < 0 else []), *([f"It is {words}."] if words else [])]
                )
    if is_function and (superfluous := _argument_factor(exercise, points, found, wanted)):
        return superfluous
    one, other = (torch.cat([each.flatten().double() for each in all_of]) for all_of in (found, wanted))
    close = _equal([one], [other], 1e-2)
    if is_function and not close and _equal([one], [other * (one @ other) / (other @ other)], exercise.tolerance):
        return "It is right up to a constant factor."
    difference = one - other
    if _equal([difference], [difference.mean().expand_as(difference)], exercise.tolerance):
        if is_function:
            return "It is off by the same amount everywhere."
        if difference.abs().item() == 1:
            return f"It is one too {'large' if difference > 0 else 'small'}."
    right = [bool(_close(a, b, exercise.tolerance).all()) for a, b in zip(found, wanted, strict=True)]
    if any(right):
        silent = [not bool(one.any()) and not fits for one, fits in zip(found, right, strict=True)]
        if all(fits or none for fits, none in zip(right, silent, strict=True)):
            tiny = all(bool((one.abs() < 1e-20).all()) for one, none in zip(wanted, silent, strict=True) if none)
            underflow = ": does a factor underflow, or its inverse overflow?" if tiny else "."
            return f"It is zero{where(silent)}, and right elsewhere{underflow}"
        return f"It is right{where(right)}, and wrong elsewhere."
    if close:
        return "It is near and not exact: was something rounded or approximated?"
    near = [bool(_close(a, b, 1e-2).all()) for a, b in zip(found, wanted, strict=True)]
    if any(near):
        return f"It is near, not exact,{where(near)}, and wrong elsewhere."
    if not is_function:
        return f"It is too {'large' if difference.sum() > 0 else 'small'}." if one.numel() == 1 else "It is wrong."
    elements = sum(int(_close(a, b, exercise.tolerance).sum()) for a, b in zip(found, wanted, strict=True))
    if not elements:
        return "It is wrong at every point tried."
    return f"It is nowhere right as a whole: {elements} of {one.numel()} numbers are."


#: By how much an answer is wrong, in words that hold no digit.
FACTORS = {
    1.0: "",
    2.0: "twice as large as it should be",
    0.5: "half of what it should be",
    3.0: "three times as large as it should be",
    1 / 3: "a third of what it should be",
    4.0: "four times as large as it should be",
    0.25: "a quarter of what it should be",
    10.0: "ten times as large as it should be",
    0.1: "a tenth of what it should be",
    math.sqrt(2): "too large by a factor of the square root of two",
    math.sqrt(0.5): "too small by a factor of the square root of two",
    math.pi: "too large by a factor of pi",
    1 / math.pi: "too small by a factor of pi",
    math.sqrt(2 * math.pi): "too large by a factor of the square root of two pi",
    1 / math.sqrt(2 * math.pi): "too small by a factor of the square root of two pi",
}


def _argument_factor(
    exercise: Exercise, points: Sequence[tuple[Any, ...]], found: Sequence[Tensor], wanted: Sequence[Tensor]
) -> str | None:
    """Whether the answer lacks a factor that is an argument or its size, or has one too many."""
    for name, factors in _candidates(exercise.parameters, points, wanted):
        for power, words in ((1.0, name), (0.5, f"the square root of {name}")):
            scaled = [factor.double() ** power for factor in factors]
            for sign, remark in ((1, ""), (-1, " And the sign is wrong.")):
                pairs = list(zip(found, wanted, scaled, strict=True))
                if _equal([a * sign * f for a, _, f in pairs], [b for _, b, _ in pairs], exercise.tolerance):
                    return f"A factor is missing: {words}.{remark}"
                if _equal([a for a, _, _ in pairs], [b * sign * f for _, b, f in pairs], exercise.tolerance):
                    return f"There is a factor too many: {words}.{remark}"
    return None


def _candidates(
    names: Sequence[str], points: Sequence[tuple[Any, ...]], wanted: Sequence[Tensor]
) -> Iterable[tuple[str, list[Tensor]]]:
    """Arguments that fit the results, and sizes of arguments, each at all points."""
    for name, values in zip(names, zip(*points, strict=True), strict=True):
        tensors = [torch.as_tensor(value) for value in values]
        if all(each.numel() == 1 or each.shape == b.shape for each, b in zip(tensors, wanted, strict=True)):
            yield name, [each.reshape(()) if each.numel() == 1 else each for each in tensors]
        for dim in range(tensors[0].ndim):
            sizes = [each.shape[dim] for each in tensors]
            if len(set(sizes)) > 1:
                yield f"the size of dimension {dim} of {name}", [torch.tensor(size) for size in sizes]


def _where(names: Sequence[str], points: Sequence[tuple[Any, ...]], chosen: Sequence[bool]) -> str:
    """Some of the points in words: where arguments have one value, if that tells them from the others."""
    if all(chosen):
        return "" if len(points) == 1 else " at every point tried"
    told = []
    for name, values in zip(names, zip(*points, strict=True), strict=True):
        constants = [_constant(value) for value in values]
        of_chosen = {constant for constant, is_chosen in zip(constants, chosen, strict=True) if is_chosen}
        others = {constant for constant, is_chosen in zip(constants, chosen, strict=True) if not is_chosen}
        if len(of_chosen) == 1 and None not in of_chosen and not of_chosen & others:
            told.append(f"{name} is {of_chosen.pop():zg}")
    # several that go together at the points tried: which of them matters cannot be told
    return f" where {' and '.join(told)}" if told else f" at {sum(chosen)} of the {len(points)} points tried"


def _constant(value: Any) -> float | None:
    """The number that an argument is, or that all its elements are."""
    elements = torch.as_tensor(value).flatten().double()
    return elements[0].item() if len(elements) and bool((elements == elements[0]).all()) else None
