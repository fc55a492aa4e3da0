"""Every registered formula of RAA, checked by SymPy for vectors of one to four elements."""

from __future__ import annotations

import math
from typing import Any

import pytest
import sympy
import torch

from companion import symbolic
from companion.dnrt import formulas
from companion.dnrt.formulas import Gate, Slope, b, i, j, v, w, written_out, x
from companion.dnrt.op import raa
from tests.together import together

FORMULAS = symbolic.formulas("dnrt-")
#: Names for what is meant: nothing that could be false.
NAMES = {"dnrt-offset", "dnrt-raa", "dnrt-slope-share", "dnrt-slope-sum"}


def instances(formula: symbolic.Formula, count: int) -> list[tuple[Any, Any]]:
    """Both sides for all indices, written out."""
    sides = [(formula.lhs, formula.rhs)]
    for index in (i, j):
        sides = [(left.subs(index, n), right.subs(index, n)) for left, right in sides for n in range(1, count + 1)]
    return [(written_out(left, count), written_out(right, count)) for left, right in dict.fromkeys(sides)]


@together("formula", [each for each in FORMULAS if each.name not in NAMES], of=lambda formula: formula.name)
def test_both_sides_are_the_same_for_every_vector(formula: symbolic.Formula) -> None:
    for count in (1, 2, 3, 4):
        for left, right in instances(formula, count):
            difference = (symbolic.expand(left) - symbolic.expand(right)).doit()
            assert sympy.simplify(difference.rewrite(sympy.erf)) == 0, (formula.name, count)


def test_a_false_gradient_is_found() -> None:
    """Without the part of the offset, every instance of two elements differs."""
    formula = symbolic.get("dnrt-gradient")
    false = formula.rhs - w[j] * formulas.H
    left, right = (written_out(side.subs(j, 1), 2) for side in (formula.lhs, false))
    assert sympy.simplify(left - right) != 0


@pytest.mark.parametrize("gate", ["gelu", "silu", "relu"])
def test_the_operator_is_the_formula(gate: str) -> None:
    count, functions = (
        3,
        {
            "gelu": lambda u: math.erfc(-u / math.sqrt(2)) / 2,
            "silu": lambda u: 1 / (1 + math.exp(-u)),
            "relu": lambda u: float(u > 0),
        },
    )
    vector, weight, bias = [0.7, -1.2, 0.1], [0.3, -0.5, 2.0], -0.4
    values: dict[Any, Any] = {b: bias}
    values |= {x[n + 1]: vector[n] for n in range(count)} | {w[n + 1]: weight[n] for n in range(count)}
    found = raa(*(torch.tensor(each, dtype=torch.float64) for each in (vector, weight, bias)), gate=gate)
    for n in range(count):
        written = written_out(formulas.y[n + 1], count).subs(values)
        exact = written.replace(Gate, lambda u: sympy.Float(functions[gate](float(u))))
        assert abs(found[n].item() - float(exact)) < 1e-14


def test_with_zeros_every_version_is_the_activation_that_it_replaces() -> None:
    z, alpha = formulas.z, formulas.alpha
    plain = z * Gate(z)
    assert symbolic.get("dnrt-raa-number").rhs.subs(alpha, 0) == plain
    assert symbolic.get("dnrt-raa-element").rhs.subs({v: 0, b: 0}) == plain
    zeros = {b: 0, **{w[n]: 0 for n in (1, 2)}}
    assert written_out(formulas.y[1], 2).subs(zeros) == x[1] * Gate(x[1])
    assert Slope(z) == Gate(z).diff(z)
