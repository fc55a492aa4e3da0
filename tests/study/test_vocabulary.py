"""Names are written out: sums, names within names, derivatives, and derivatives by a name."""

from __future__ import annotations

import sympy

from companion.study.symbolic import Partial
from companion.study.vocabulary import Vocabulary

n, j, i = (sympy.Symbol(name, integer=True, positive=True) for name in "nji")
x, y = sympy.IndexedBase("x", real=True), sympy.IndexedBase("y", real=True)
mean, spread, a = sympy.symbols("mu v a", real=True)


def words() -> Vocabulary:
    made = Vocabulary()
    made.name(mean, sympy.Sum(x[j], (j, 1, n)) / n)
    made.name(spread, sympy.Sum((x[j] - mean) ** 2, (j, 1, n)) / n)
    made.name(y[i], a * x[i] * mean)
    return made


def test_names_within_names_and_sums_become_terms() -> None:
    assert sympy.expand(words().written_out(spread, {n: 2}) - (x[1] - x[2]) ** 2 / 4) == 0
    assert words().written_out(y[2], {n: 1}) == a * x[2] * x[1]


def test_a_derivative_goes_through_names_but_not_through_the_one_that_it_is_by() -> None:
    assert sympy.expand(words().written_out(Partial(y[1], x[1]), {n: 2}) - a * (x[1] + x[2] / 2)) == 0
    assert sympy.expand(words().written_out(Partial(y[1], mean), {n: 2}) - a * x[1]) == 0
    # of the mean itself there is nothing else to vary
    assert words().written_out(Partial(mean**2, mean), {n: 1}) == 2 * x[1]


def test_what_has_no_meaning_or_another_number_of_indices_stays() -> None:
    assert words().written_out(a + y[1, 2], {n: 2}) == a + y[1, 2]


def test_a_condition_gives_a_name_a_meaning_for_once_and_a_new_meaning_replaces_the_old() -> None:
    made = words()
    assert made.written_out(x[1] + x[2], {n: 2}, sympy.Eq(x[i], a * i)) == 3 * a
    assert made.written_out(x[1] + x[2], {n: 2}) == x[1] + x[2]
    assert made.written_out(y[1], {n: 1}) == a * x[1] ** 2
    made.name(mean, a)
    assert made.written_out(y[1], {n: 1}) == a**2 * x[1]
    assert made.written_out(y[1], {n: 2}) == a**2 * x[1]
