"""What the reader's browser says about an answer, as a table that is made when the book is built.

An exercise can be answered on its page if its answer is a number, or a function of numbers that gives a number. Its
table holds the points where a formula is tried and, for many answers, their values there and what `check` of
`companion.study.exercises` says of them: the right one, every known mistake, the right one with a wrong sign, with a
factor too many, with two arguments exchanged. ``book/_static/answers.js`` looks the reader's answer up in it. Of what
is not there it says how far it is off, in the words of `check`.

The table is in base64, so that nobody reads an answer who does not want to. It is no secret, and a hash would make it
none: formulas are compared by their values, up to a tolerance, and these the browser has to know.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from companion.study.exercises import FACTORS, Exercise, check

Function = Callable[..., Any]


def table(exercise: Exercise) -> dict[str, Any] | None:
    """What the browser needs to know, or None if a line of text cannot be the answer.

    Returns
    -------
    dict
        ``names`` of the variables; ``points``, a list of numbers each; ``tolerance``; ``answers``, pairs of words and
        values at the points, the right one first. What JSON cannot say (NaN, infinity) is a string.
    """
    points = [()] if exercise.points is None else list(exercise.points())
    if not all(_is_number(each) for point in points for each in (*point, exercise.reference(*_copies(point)))):
        return None
    answers = [["Right.", _values(exercise.reference, points)]]
    for function in _likely(exercise, points):
        values = _values(function, points)
        said = check(exercise.id, function if points != [()] else function())
        if not said and [said.text, values] not in answers:
            answers.append([said.text, values])
    return {
        "names": exercise.parameters,
        "points": [[_written(each) for each in point] for point in points],
        "tolerance": exercise.tolerance,
        "answers": answers,
    }


def place(content: dict[str, Any]) -> str:
    """Where the browser puts a line to answer in: an element that carries the table."""
    carried = base64.b64encode(json.dumps(content, ensure_ascii=False, allow_nan=False).encode()).decode()
    return f'<div class="neuron-answer" data-answers="{carried}"></div>'


def _likely(exercise: Exercise, points: list[tuple[Any, ...]]) -> Iterator[Function]:
    """Wrong answers that readers give."""
    yield from exercise.mistakes.values()
    arguments = range(len(exercise.parameters))
    for one, other in itertools.combinations(arguments, 2):
        order = [{one: other, other: one}.get(at, at) for at in arguments]
        if all(_can(exercise.reference, [point[at] for at in order]) for point in points):
            yield partial(_exchanged, exercise.reference, order)
    factors: list[Function] = [partial(_constant, factor) for factor in FACTORS]
    for at, power in itertools.product(arguments, (1, -1, 0.5, -0.5)):
        if power == 1 or all(point[at] > 0 or (power == -1 and point[at] != 0) for point in points):
            factors.append(partial(_power, at, power))
    for factor, sign in itertools.product(factors, (1, -1)):
        yield partial(_times, exercise.reference, factor, sign)
    if arguments:
        yield lambda *_: 0.0  # last: beside zero the tolerance is no share of anything
    else:
        yield lambda: exercise.reference() + 1
        yield lambda: exercise.reference() - 1


def _exchanged(function: Function, order: list[int], *point: Any) -> Any:
    return function(*[point[at] for at in order])


def _constant(factor: float, *_: Any) -> float:
    return factor


def _power(at: int, power: float, *point: Any) -> Any:
    return point[at] ** power


def _times(function: Function, factor: Function, sign: int, *point: Any) -> Any:
    return sign * factor(*point) * function(*point)


def _can(function: Function, point: list[Any]) -> bool:
    """Whether a function takes these arguments: a momentum is no deviation."""
    try:
        return math.isfinite(function(*_copies(point)))
    except (ArithmeticError, ValueError):
        return False


def _values(function: Function, points: list[tuple[Any, ...]]) -> list[float | str]:
    return [_written(function(*_copies(point))) for point in points]


def _copies(point: Any) -> list[Any]:
    """Arguments that a function may change."""
    return [each.clone() if isinstance(each, Tensor) else each for each in point]


def _is_number(value: Any) -> bool:
    return torch.as_tensor(value).numel() == 1


def _written(value: Any) -> float | str:
    number = float(f"{float(value):.13g}")
    return number if math.isfinite(number) else str(number).replace("inf", "Infinity").replace("nan", "NaN")
