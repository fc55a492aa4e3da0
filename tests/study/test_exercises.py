"""Right answers are right in any form, every listed mistake gets its own words, and no word gives the answer away."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from companion.functional import raa
from companion.study import exercises
from companion.study.exercises import Exercise, check
from tests.cases import of_rooms, together

ALL = exercises.exercises()
NUMBERS = [name for name, exercise in ALL.items() if exercise.points is None]
FUNCTIONS = [name for name, exercise in ALL.items() if exercise.points is not None]
#: Beside the tests of each room and chapter, in a file of its own.
RIGHT: dict[str, list[Any]] = of_rooms("RIGHT", "answers")
WRONG: dict[str, list[tuple[Any, str]]] = of_rooms("WRONG", "answers")
SMALL: dict[str, tuple[float, ...]] = of_rooms("SMALL", "answers")


def answer_of(function: Callable[..., Any], name: str) -> Any:
    """What a reader hands in: the function, or its value where a number is asked for."""
    return function() if name in NUMBERS else function


def test_every_exercise_has_right_answers_here() -> None:
    assert list(RIGHT) == list(ALL)


@together("name", ALL)
def test_a_right_answer_is_right_in_any_form(name: str) -> None:
    for answer in RIGHT[name]:
        verdict = check(name, answer)
        assert verdict, (answer, verdict)
        assert repr(verdict) == "Right."


@together("name", ALL)
def test_every_known_mistake_gets_its_own_words(name: str) -> None:
    assert ALL[name].mistakes
    for words, mistake in ALL[name].mistakes.items():
        verdict = check(name, answer_of(mistake, name))
        assert not verdict
        assert verdict.text == words


@together("name", ALL)
def test_any_other_answer_is_wrong(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    draw = lambda: 100 * torch.rand((), generator=generator).item() + 0.1234  # noqa: E731
    for _ in range(5):
        number = draw()
        reference = ALL[name].reference

        def shifted(*arguments: Any, number: float = number, reference: Any = reference) -> Any:
            return reference(*arguments) + torch.as_tensor(arguments[0]).abs().max() + number

        verdict = check(name, number if name in NUMBERS else shifted)
        assert not verdict
        assert verdict.text not in ALL[name].mistakes


@together("name", NUMBERS)
def test_no_word_holds_the_number(name: str) -> None:
    right = ALL[name].reference()
    answers = [*(mistake() for mistake in ALL[name].mistakes.values()), None, "a", math.nan, 1e9, -1e9, right * 1.001]
    answers += [right * factor for factor in (-1, 2, -2, 0.5, 3, 1 / 3, 4, 0.25, 10, 0.1)] + [right + 1, right - 1]
    for answer in answers:
        verdict = check(name, answer)
        assert not verdict
        assert abs(right) not in {float(number) for number in re.findall(r"\d+(?:\.\d+)?", verdict.text)}, verdict


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [(name, *each) for name, answers in WRONG.items() for each in answers],
)
def test_what_is_wrong_is_said(name: str, answer: Any, words: str) -> None:
    verdict = check(name, answer)
    assert not verdict
    assert repr(verdict) == words


@pytest.mark.parametrize(("name", "answers"), SMALL.items())
def test_a_likely_small_number_is_not_measured_against_the_right_one(name: str, answers: tuple[float, ...]) -> None:
    for answer in answers:
        assert check(name, answer).text in ALL[name].mistakes, answer


def test_an_answer_that_changes_its_arguments_is_told() -> None:
    def in_place(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        y = raa(x, w, b)
        x.zero_()
        return y

    assert check("dnrt-2", in_place).text == "It changes argument 1; leave it as it is, and return something new."


def test_an_unknown_exercise_is_told_those_of_its_page() -> None:
    with pytest.raises(
        ValueError, match=r"id: got 'dnrt-kernel-9', allowed are dnrt-kernel-1, dnrt-kernel-2, dnrt-ke\S+$"
    ):
        check("dnrt-kernel-9", 1)
    with pytest.raises(ValueError, match=r"allowed are .*dnrt-1, .*dnrt-derivation-1"):
        check("nothing", 1)


@together("name", FUNCTIONS)
def test_sizes_and_values_differ_from_point_to_point(name: str) -> None:
    points = list(ALL[name].points())  # type: ignore[misc]
    assert len(points) >= 3
    for one, other in zip(points, ALL[name].points(), strict=True):  # type: ignore[misc]
        assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(one, other, strict=True))


def test_ids_are_of_pages() -> None:
    from companion import rooms

    modules = rooms.studies("exercises")
    pages = {path.stem for path in Path(__file__).parents[2].glob("book/*/*.ipynb")}
    for module in modules.values():
        for exercise in module.EXERCISES:
            assert isinstance(exercise, Exercise)
            page, _, number = exercise.id.rpartition("-")
            assert page in pages
            assert number.isdigit()
    assert len(ALL) == sum(len(module.EXERCISES) for module in modules.values())


def test_the_product_in_which_mistakes_are_made_is_right_without_one() -> None:
    from companion.dnrt.study.exercises import _product, batches, met

    for drawn in batches():
        torch.testing.assert_close(_product(*drawn), met(*drawn))
