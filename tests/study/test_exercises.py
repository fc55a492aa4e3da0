"""Right answers are right in any form, every listed mistake gets its own words, and no word gives the answer away."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from scipy import stats
from torch import Tensor, nn

from companion.apa.study.exercises import by_kappa, log_slope
from companion.dac.layers import DACConv2d
from companion.dac.study.constructions import replicated
from companion.dac.study.exercises import AT, BIASES, WEIGHTS, bias_gradient, input_gradient
from companion.dnrt.layers import ARR
from companion.dnrt.study import formulas
from companion.dnrt.study.exercises import slope_sum
from companion.functional import apa, dac_linear, la_silu, raa
from companion.layeract.layers import LASiLU
from companion.layeract.study.exercises import UNITS, causal, joined, padded
from companion.multi_argument.layers import Quadratic
from companion.study import exercises, symbolic
from companion.study.analysis import paired
from companion.study.exercises import NO_ANSWER, Exercise, check
from companion.study.ground.exercises import CHUNK, softmax, used
from tests.cases import together

ALL = exercises.exercises()
NUMBERS = [name for name, exercise in ALL.items() if exercise.points is None]
FUNCTIONS = [name for name, exercise in ALL.items() if exercise.points is not None]


def answer_of(function: Callable[..., Any], name: str) -> Any:
    """What a reader hands in: the function, or its value where a number is asked for."""
    return function() if name in NUMBERS else function


def means_by_a_loop(means: Tensor, x: Tensor, target: Tensor, m: float) -> Tensor:
    means = means.clone()
    for i, k in enumerate(target):
        means[k] += m * (x[i] - means[k])
    return means


def means_by_the_module(means: Tensor, x: Tensor, target: Tensor, m: float) -> Tensor:
    arr = ARR(len(means), means.shape[1], momentum=m, init="zero")
    arr.mean.copy_(means)
    arr(x, target)
    return arr.mean.to(means)


class Tokens(nn.Module):
    """A module that is asked like a function."""

    def forward(self, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        u = x + x @ w[:, None] + b
        return x * (1 + torch.erf(u / 2**0.5)) / 2


def delta_by_autograd(grad: Tensor, h: Tensor, z: Tensor, w: Tensor, c: Tensor) -> Tensor:
    # any u whose ReLU is h, with slope 0 where h is 0
    u = torch.where(h > 0, h, -1.0).requires_grad_()
    second = z + (u.relu() - h) @ w.mT
    return torch.autograd.grad((grad[:, None] * c * second.relu()).sum(), u)[0]


def quadratic_by_a_loop(x: Tensor, c: Tensor) -> Tensor:
    pairs = [(x[:, k], x[:, k + 1]) for k in range(0, x.shape[1], 2)]
    return torch.stack([c @ torch.stack([a * a, b * b, a * b, a, b, torch.ones_like(a)]) for a, b in pairs], 1)


def h_as_it_stands(t: Tensor) -> Tensor:
    return (torch.log1p(t) - t / (1 + t)) / t**2


class Corners(nn.Module):
    """GELU falls before it rises, so it parts the corners of XOR, too."""

    def forward(self, t: Tensor) -> Tensor:
        low, high = (nn.functional.gelu(each - 0.75) for each in (torch.zeros(()).double(), t))
        return torch.where(high > low, 1.0, -1.0).double()


def silu_of_tokens(y: Tensor) -> Tensor:
    n = (y - y.mean(-1, keepdim=True)) / torch.sqrt(y.var(-1, correction=0, keepdim=True) + 1e-5)
    return y * torch.sigmoid(n)


def causal_by_sums(y: Tensor) -> Tensor:
    count = y.shape[1] * torch.arange(1, len(y) + 1)[:, None]
    mean = y.sum(1, keepdim=True).cumsum(0) / count
    variance = (y**2).sum(1, keepdim=True).cumsum(0) / count - mean**2
    return y / (1 + torch.exp(-(y - mean) / torch.sqrt(variance + 1e-5)))


def padded_by_loop(y: Tensor, valid: Tensor) -> Tensor:
    a = torch.zeros_like(y)
    for i, k in valid.nonzero():
        a[i, k] = la_silu(y[i, k])
    return a


def joined_by_two(mean: Tensor, squares: Tensor, length: Tensor) -> Tensor:
    # Chan's formula for two chunks, again and again
    d, m, s = length[0], mean[0], squares[0]
    for k, other, more in zip(length[1:], mean[1:], squares[1:], strict=True):
        s = s + more + (other - m) ** 2 * d * k / (d + k)
        m, d = m + (other - m) * k / (d + k), d + k
    return torch.stack([m, s / d])


def used_by_bytes(stride: int) -> float:
    fetched = np.unique((4 * stride * np.arange(32)[:, None] + np.arange(4)) // 32)
    return 128 / (32 * len(fetched))


def _over_its_sum(powers: Tensor) -> Tensor:
    return powers / powers.sum(-1, keepdim=True)


def softmax_by_halves(y: Tensor) -> Tensor:
    # each half has a maximum of its own, and is scaled to the larger one
    halves = [each for each in y.chunk(2, -1) if each.shape[-1]]
    largest = [each.amax(-1, keepdim=True) for each in halves]
    of_all = torch.stack(largest).amax(0)
    powers = [torch.exp(each - m) * torch.exp(m - of_all) for each, m in zip(halves, largest, strict=True)]
    return torch.cat(powers, -1) / sum(each.sum(-1, keepdim=True) for each in powers)


def dac_by_loops(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    f = z.new_zeros(len(z), len(weight))
    for i in range(len(weight)):
        for j in range(z.shape[1]):
            f[:, i] += weight[i, j] * torch.clamp(bias[i, j] + z[:, j], min=0)
    return f


def blocks(weight: Tensor) -> Tensor:
    n, m = weight.shape
    matrix = weight.new_zeros(n, n * m)
    for k in range(n):
        matrix[k, k * m : (k + 1) * m] = weight[k]
    return matrix


def dac_back_by_loops(g: Tensor, z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    back = torch.zeros_like(z)
    padded = nn.functional.pad(g, (1, 1, 1, 1))
    height, width = z.shape[1:]
    for a in range(3):
        for c in range(3):
            # the output at q − p, with the middle of the kernel at 1
            there = padded[:, 2 - a : 2 - a + height, 2 - c : 2 - c + width]
            on = z + bias[:, :, None, None] > 0
            back += (there[:, None] * weight[:, :, a, c, None, None] * on).sum(0)
    return back


p, q, r = sympy.symbols("p q r")
sigma, m, some = sympy.Symbol("sigma", positive=True), sympy.Symbol("m"), sympy.Symbol("some")
mean_distance = sigma * sympy.sqrt(2 / sympy.pi)
moving_distance = mean_distance * sympy.sqrt(2 / (2 - m))
other_slope = symbolic.get("dnrt-jacobian").rhs
u_i = formulas.x[formulas.i] + formulas.c
NOT_EXACT = "It is near and not exact: was something rounded or approximated?"
DTYPE, OF_ARGUMENTS = "Its dtype is", "asked is torch.float64, that of the arguments."
CHANGED = "Two arguments have changed places:"
FOREIGN, OFFERED = "The formula has the symbol", ALL["dnrt-derivation-1"].names

RIGHT: dict[str, list[Any]] = {
    "apa-1": [0.63, 4 ** (-1 / 3), sympy.Rational(1, 4) ** sympy.Rational(1, 3), apa(torch.tensor(0.0), 1.0, 3.0)],
    "apa-2": [
        lambda w, b, v, kappa: torch.stack([w * kappa, b * kappa, v / kappa]),
        lambda w, b, v, kappa: torch.stack([w, b, v]) * torch.stack([kappa, kappa, 1 / kappa]),
    ],
    "apa-3": [
        lambda a, b: paired(a.tolist(), b.tolist())[0].half_width,
        lambda a, b: stats.t.ppf(0.975, len(a) - 1) * stats.sem((a - b).numpy()),
    ],
    "apa-derivation-1": [
        symbolic.expand(symbolic.get("apa-log-d-lambda").rhs).subs(symbolic.lam, sympy.Symbol("lam")),
        lambda z, kappa, lam: (torch.log1p(lam * torch.exp(-kappa * z)) / lam - 1 / (lam + torch.exp(kappa * z))) / lam,
        lambda z, kappa, lam: torch.func.grad(lambda each: -torch.log1p(each * torch.exp(-kappa * z)) / each)(lam),
    ],
    "apa-derivation-2": [-1.2785, -1.27846, -1 - sympy.LambertW(sympy.exp(-1))],
    "apa-derivation-3": [
        lambda t: torch.where(
            t < 0.1, sum((n + 1) / (n + 2) * (-t.clamp(max=0.1)) ** n for n in range(8)), h_as_it_stands(t)
        ),
        lambda t: h_as_it_stands(t.double()).float(),
    ],
    "apa-kernel-1": [8, 8.0],
    "apa-kernel-2": [
        lambda z, kappa, lam: by_kappa(z, kappa, lam),
        lambda z, kappa, lam: (
            (
                z
                * torch.exp(
                    (nn.functional.logsigmoid(lam.log() - kappa * z) - lam.log()) / 2
                    - nn.functional.softplus(lam.log() - kappa * z) / lam / 2
                )
            )
            ** 2
        ),
    ],
    "apa-kernel-3": [977, 977.0, math.ceil(10**6 / 1024)],
    "layeract-1": [silu_of_tokens, lambda y: la_silu(y, dims=-1), LASiLU(dims=-1)],
    "layeract-2": [4, 4.0, UNITS // 10, sympy.floor(sympy.Rational(UNITS, 10))],
    "layeract-3": [causal_by_sums],
    "layeract-derivation-1": [0.67, 1 / (1 + math.exp(-(0.5**0.5))), 1 / (1 + sympy.exp(-1 / sympy.sqrt(2)))],
    "layeract-derivation-2": [lambda t: 1 / t, 1 / sympy.Symbol("t"), 1 / sympy.Symbol("t", positive=True)],
    "layeract-derivation-3": [padded_by_loop],
    "layeract-derivation-4": [-0.3324, -math.erf(3 / 2**0.5) / 3, -sympy.erf(3 / sympy.sqrt(2)) / 3],
    "layeract-kernel-1": [10, 10.0, 5 * torch.bfloat16.itemsize],
    "layeract-kernel-2": [0.003906, 2**-8, 2.0**16 * 2**-24],
    "layeract-kernel-3": [joined_by_two],
    "dac-1": [
        -1.5,
        2 - 3.5,
        sympy.Rational(-3, 2),
        sum(w for w, b in zip(WEIGHTS, BIASES, strict=True) if AT + b > 0),
        (lambda f: (f(0.6) - f(0.4)) / 0.2)(
            lambda x: replicated(
                torch.tensor(x).double(), torch.tensor(WEIGHTS).double(), torch.tensor(BIASES).double()
            )
        ),
    ],
    "dac-2": [dac_by_loops, dac_linear, lambda z, weight, bias: ((z[:, None] + bias).relu() * weight).sum(2)],
    "dac-3": [blocks, lambda weight: torch.block_diag(*weight)],
    "dac-derivation-1": [7, 7.0, 5 + 2, sympy.Integer(7)],
    "dac-derivation-2": [p + q - r, lambda p, q, r: p - r + q, lambda p, q, r: torch.tensor(p + q - r)],
    "dac-derivation-3": [
        bias_gradient,
        lambda g, x, weight, bias: (
            g[:, :, None, None] * weight * torch.heaviside(x[:, None] + bias[:, :, None], torch.zeros(()).double())
        ).sum((0, 3)),
    ],
    "dac-kernel-1": [46_080, 48 * 96 * 10.0, sum(each.numel() for each in DACConv2d(48, 96, 3).parameters())],
    "dac-kernel-2": [6272, 64 * 512 * 512 * 196 * 2 / 2**20, Fraction(6272)],
    "dac-kernel-3": [input_gradient, dac_back_by_loops],
    "dnrt-1": [-2, -2.0, torch.tensor(-2), torch.tensor([-2.0]), np.float32(-2), sympy.Integer(-2), Fraction(-2)],
    "dnrt-2": [
        raa,
        lambda x, w, b: nn.functional.gelu(x + x @ w[:, None] + b) / (1 + (x @ w[:, None] + b) / x),
        Tokens(),
    ],
    "dnrt-3": [means_by_a_loop, means_by_the_module],
    "dnrt-derivation-1": [
        other_slope,
        formulas.w[formulas.j] * formulas.x[formulas.i] * formulas.slope(u_i),
        formulas.w[formulas.j] * formulas.x[formulas.i] * sympy.exp(-(u_i**2) / 2) / sympy.sqrt(2 * sympy.pi),
        lambda x, w, b, i, j: w[j] * x[i] * math.exp(-((x[i] + x @ w + b) ** 2) / 2) / math.sqrt(2 * math.pi),
    ],
    "dnrt-derivation-2": [mean_distance, lambda s: s * (2 / math.pi) ** 0.5],
    "dnrt-derivation-3": [moving_distance, lambda s, m: s * math.sqrt(4 / math.pi / (2 - m))],
    "dnrt-derivation-4": [44, torch.tensor(44), sympy.ceiling(sympy.log(0.01) / sympy.log(0.9))],
    "dnrt-kernel-1": [4, 4.0],
    "dnrt-kernel-2": [3, 768 // 8 / 32],
    "dnrt-kernel-3": [
        lambda g, x, c: (
            torch.einsum("nd,nd,nd->n", g, x, torch.exp(-((x + c[:, None]) ** 2) / 2)) / math.sqrt(2 * math.pi)
        )
    ],
    "multi-argument-1": [
        lambda c: 2 * c[2],
        lambda c: (c[0] + c[1] + c[2] + c[5]) - (c[0] + c[1] - c[2] + c[5]),
    ],
    "multi-argument-2": [
        quadratic_by_a_loop,
        lambda x, c: Quadratic(coefficients=c.tolist(), dtype=x.dtype)(x),
    ],
    "multi-argument-3": [12_928, 12_928.0, nn.Linear(100, 128).weight.numel() + 128],
    "multi-argument-derivation-1": [1217, 1217.0, 4 * 32 + 33 * 32 + 33],
    "multi-argument-derivation-2": [
        lambda t: t**2 / 2 - 1,
        lambda t: abs(t) - 1,
        lambda t: -math.cos(math.pi * t / 2),
        lambda t: 1 if t * t > 1 else -1,
        sympy.Symbol("t") ** 2 / 2 - 1,
        torch.nn.Sequential(Corners()),
    ],
    "multi-argument-derivation-3": [
        1 / (16 * math.pi**2) - 1 / 64,
        -0.0093,
        1 / (16 * sympy.pi**2) - sympy.Rational(1, 64),
    ],
    "multi-argument-kernel-1": [4352, 4352.0, 64 * (3 + 64 + 1)],
    "multi-argument-kernel-2": [960, 32 * 60 * 1024 * 512 / 2**20, Fraction(960)],
    "multi-argument-kernel-3": [
        lambda grad, h, z, w, c: torch.einsum("n,nj,j,ji->ni", grad, (z > 0).double(), c, w) * h.sign(),
        delta_by_autograd,
        lambda grad, h, z, w, c: (grad.outer(c) * torch.where(z > 0, 1.0, 0.0)) @ w * (h != 0),
    ],
    "kernels-1": [240, 240.0, 40 * 256 - 10_000],
    "kernels-2": [
        used_by_bytes,
        lambda stride: max(1 / stride, 1 / 8),
        1 / sympy.Min(sympy.Symbol("stride"), 8),
    ],
    "kernels-3": [
        nn.Softmax(dim=-1),
        lambda y: torch.exp(y.double() - torch.logsumexp(y.double(), -1, keepdim=True)).float(),
        softmax_by_halves,
    ],
    "puzzles-1": [lambda x: x + 10, lambda x: x.add(10.0)],
    "puzzles-2": [lambda x, b: x + b[None], torch.add],
    "puzzles-3": [
        lambda x: torch.stack([each.sum() for each in x.split(CHUNK)]),
        lambda x: torch.zeros(-(-len(x) // CHUNK)).index_add(0, torch.arange(len(x)) // CHUNK, x),
    ],
    "puzzles-4": [lambda x: x.cumsum(1), lambda x: x @ torch.ones(32, 32).triu()],
    "puzzles-5": [lambda x: torch.stack([x.mean(1), x.var(1, correction=0)], 1)],
    "puzzles-6": [torch.matmul, lambda a, b: (a[:, :, None] * b).sum(1)],
    "which-neuron-1": [2, 2.0, Fraction(2)],
    "composing-1": [-0.3, 98.0 - 97.9 - 97.4 + 97.0, Fraction(-3, 10)],
    "scaling-out-1": [1.2, 3 * 7.2e5 * 1e8 / 5e10 / 3600, Fraction(6, 5)],
}


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
    [
        ("apa-1", 0.5, "That is the sigmoid's height, with λ = 1."),
        ("apa-1", 4 ** (1 / 3), "The exponent lacks its minus: a gate is never above one."),
        ("apa-1", 1 / 64, "The exponent is −λ; it is −1/λ."),
        ("apa-1", -0.63, "The sign is wrong."),
        ("apa-1", 0.65, "It is too large."),
        (
            "apa-2",
            lambda w, b, v, kappa: torch.stack([kappa * w, b, v / kappa]),
            "The bias is forgotten: the gate sees κ times all of wx + b.",
        ),
        ("apa-2", lambda w, b, v, kappa: (w, b, v), "It gives a tuple; asked is a number or a tensor."),
        (
            "apa-2",
            lambda w, b, v, kappa: torch.stack([w / kappa, b / kappa, v * kappa]),
            "The scales are exchanged: the layer before multiplies by κ, the one after divides.",
        ),
        ("apa-2", lambda w, b, v, kappa: kappa * w, "Its shape is (); asked is (3,)."),
        (
            "apa-2",
            lambda w, b, v, kappa: torch.stack([abs(kappa) * w, abs(kappa) * b, v / abs(kappa)]),
            "It is right at 3 of the 4 points tried, and wrong elsewhere.",
        ),
        (
            "apa-3",
            lambda a, b: 1.96 * (a - b).std() / len(a) ** 0.5,
            "With so few seeds the factor is Student's, not that of the normal law.",
        ),
        (
            "apa-3",
            lambda a, b: stats.t.ppf(0.975, len(a) - 1) * ((a.var() + b.var()) / len(a)) ** 0.5,
            "The lists are not paired: what a seed does to both is still in it.",
        ),
        (
            "apa-3",
            lambda a, b: stats.t.ppf(0.975, len(a) - 1) * (a - b).std(),
            "That is the interval of one difference, not of their mean: divide by the root of their number.",
        ),
        (
            "apa-3",
            lambda a, b: (a - b).std() / len(a) ** 0.5,
            "That is the standard error; an interval of 95 % is wider.",
        ),
        ("apa-3", lambda a, b: a - b, "Its shape is (5,); asked is one number."),
        (
            "apa-derivation-1",
            lambda z, kappa, lam: -torch.exp(-kappa * z) / lam / (1 + lam * torch.exp(-kappa * z)),
            "The exponent −1/λ is held fixed: λ stands there, too.",
        ),
        (
            "apa-derivation-1",
            lambda z, kappa, lam: torch.log1p(lam * torch.exp(-kappa * z)) / lam**2,
            "The bracket is held fixed: λ stands there, too.",
        ),
        (
            "apa-derivation-1",
            lambda z, kappa, lam: 1 / (lam + torch.exp(kappa * z)),
            "That is the derivative by the product κz.",
        ),
        ("apa-derivation-1", lambda z, kappa, lam: -log_slope(z, kappa, lam), "The sign is wrong."),
        ("apa-derivation-1", sympy.Symbol("lambda"), "The formula has the symbol lambda; it may have z, kappa, lam."),
        ("apa-derivation-2", -0.2785, "That is the lowest value; asked is where it lies."),
        ("apa-derivation-2", 1.2785, "The sign is wrong."),
        ("apa-derivation-2", -1, "The power of e is forgotten: e to the κz is small there, but not zero."),
        ("apa-derivation-2", -1.28, NOT_EXACT),
        ("apa-derivation-2", "left of zero", "This is of type str; asked is a number."),
        ("apa-derivation-3", h_as_it_stands, "That is the formula as it stands: where t is small it cancels."),
        ("apa-derivation-3", lambda t: 0.5 + 0 * t, "That is the first term of the series alone."),
        ("apa-derivation-3", lambda t: torch.log1p(t) - t / (1 + t), "The division by t² is missing."),
        (
            "apa-derivation-3",
            lambda t: h_as_it_stands(t.double()),
            "Its dtype is torch.float64; asked is torch.float32, that of the arguments.",
        ),
        (
            "apa-derivation-3",
            lambda t: sum((-1) ** n * (n + 1) / (n + 2) * t**n for n in range(8)),
            "The series is wrong where t is large: it holds below one.",
        ),
        (
            "apa-derivation-3",
            lambda t: torch.where(
                t < 0.5, sum((n + 1) / (n + 2) * (-t.clamp(max=0.5)) ** n for n in range(8)), h_as_it_stands(t)
            ),
            "It is right at 2 of the 3 points tried, and wrong elsewhere.",
        ),
        ("apa-kernel-1", 4, "That is the forward pass, which does not save it."),
        ("apa-kernel-1", 16, "That is float32."),
        ("apa-kernel-1", 6, "That is our kernel, which does not read it."),
        ("apa-kernel-1", 9, "It is one too large."),
        ("apa-kernel-1", -8, "The sign is wrong."),
        (
            "apa-kernel-2",
            lambda z, kappa, lam: (
                z * z * (1 + lam * torch.exp(-kappa * z)) ** (-1 / lam) / (lam + torch.exp(kappa * z))
            ),
            "It is zero where kappa is 0.001, and right elsewhere: does a factor underflow, or its inverse overflow?",
        ),
        ("apa-kernel-2", lambda z, kappa, lam: -by_kappa(z, kappa, lam), "The sign is wrong."),
        (
            "apa-kernel-2",
            lambda z, kappa, lam: by_kappa(z, lam, kappa),
            "Two arguments have changed places: kappa and lam.",
        ),
        ("apa-kernel-2", lambda z, kappa, lam: by_kappa(z, kappa, lam).sum(), "Its shape is (); asked is (9,)."),
        (
            "apa-kernel-2",
            lambda z, kappa, lam: by_kappa(z.double(), kappa, lam),
            "Its dtype is torch.float64; asked is torch.float32, that of the arguments.",
        ),
        (
            "apa-kernel-3",
            976,
            "A sum for the rest is missing: the last chunk is shorter, and has one, too.",
        ),
        ("apa-kernel-3", 10**6 / 1024, "The last chunk is shorter, and has a whole sum."),
        ("apa-kernel-3", 978, "It is one too large."),
        ("apa-kernel-3", 1954, "Those are the sums of κ and of λ."),
        ("apa-kernel-3", 123, "Those are blocks; each of its eight warps leaves a sum."),
        ("dnrt-1", ..., NO_ANSWER),
        ("dnrt-1", None, NO_ANSWER),
        ("dnrt-2", lambda x, w, b: ..., NO_ANSWER),
        ("dnrt-1", 2, "The sign is wrong."),
        ("dnrt-1", -4, "It is twice as large as it should be."),
        ("dnrt-derivation-4", -22, "The sign is wrong. It is half of what it should be."),
        ("dnrt-1", 7, "It is too large."),
        ("dnrt-1", -7, "It is too small."),
        ("dnrt-1", -2.001, NOT_EXACT),
        ("dnrt-1", math.nan, "It is NaN."),
        ("dnrt-1", torch.zeros(3), "Its shape is (3,); asked is one number."),
        ("dnrt-1", "two", "This is of type str; asked is a number."),
        ("dnrt-1", True, "It gives a bool; asked is a number or a tensor."),
        ("dnrt-1", lambda: -2, "This is a function; asked is a number."),
        ("dnrt-derivation-4", 45, "It is one too large."),
        ("dnrt-derivation-4", 43.7, "There it weighs exactly a hundredth. Samples are whole, and it is to weigh less."),
        ("dnrt-derivation-4", 43.5, "It is too small."),
        ("dnrt-2", 3, "This is of type int; asked is a function of (x, weight, bias)."),
        (
            "dnrt-2",
            lambda x, w, b: nn.functional.gelu(x) * (1 + b * b),
            "It is right where weight is 0 and bias is 0, and wrong elsewhere.",
        ),
        ("dnrt-2", lambda x: x, "It does not take 3 arguments; asked is a function of (x, weight, bias)."),
        ("dnrt-2", lambda x, w, b: 1 / 0, "It fails with ZeroDivisionError: division by zero"),
        ("dnrt-2", lambda x, w, b: None, "It returns None: is there a return?"),
        ("dnrt-2", lambda x, w, b: [x], "It gives a list; asked is a number or a tensor."),
        ("dnrt-2", lambda x, w, b: raa(x, w, b).mT, "It is transposed: its shape is (2, 4, 3), asked is (2, 3, 4)."),
        (
            "dnrt-2",
            lambda x, w, b: raa(x, w, b)[None],
            "Its shape is (1, 2, 3, 4); asked is (2, 3, 4): a dimension of size one is too many.",
        ),
        ("dnrt-2", lambda x, w, b: raa(x, w, b).sum(-1), "Its shape is (2, 3); asked is (2, 3, 4)."),
        (
            "dnrt-2",
            lambda x, w, b: raa(x, w, b).float(),
            "Its dtype is torch.float32; asked is torch.float64, that of the arguments.",
        ),
        ("dnrt-2", lambda x, w, b: -raa(x, w, b), "The sign is wrong."),
        ("dnrt-2", lambda x, w, b: 1.3 * raa(x, w, b), "It is right up to a constant factor."),
        ("dnrt-2", lambda x, w, b: raa(x, w, b) + 1, "It is off by the same amount everywhere."),
        ("dnrt-2", lambda x, w, b: x * raa(x, w, b), "There is a factor too many: x."),
        ("dnrt-2", lambda x, w, b: raa(x, w, b) / len(w), "A factor is missing: the size of dimension 2 of x."),
        ("dnrt-2", lambda x, w, b: raa(x, w, b) * (0 / w.sum() + 1), "It is NaN where weight is 0 and bias is 0."),
        (
            "dnrt-2",
            lambda x, w, b: raa(x, w, b, gate=lambda u: torch.sigmoid(1.5957691216 * (u + 0.044715 * u**3))),
            "It is near and not exact: was something rounded or approximated?",
        ),
        ("dnrt-2", lambda x, w, b: x.cos(), "It is wrong at every point tried."),
        (
            "dnrt-2",
            lambda x, w, b: torch.where(x < 0, raa(x, w, b), x.cos()),
            "It is nowhere right as a whole: 87 of 164 numbers are.",
        ),
        ("dnrt-2", lambda x, w, b: torch.zeros_like(x), "It is zero everywhere."),
        ("dnrt-2", lambda x, b, w: raa(x, w, b), "Two arguments have changed places: weight and bias."),
        ("dnrt-derivation-1", formulas.x[formulas.i] * sympy.Symbol("x_j"), f"{FOREIGN} x_j; it may have {OFFERED}."),
        ("dnrt-derivation-1", formulas.x[formulas.k], f"{FOREIGN} k; it may have {OFFERED}."),
        ("dnrt-derivation-2", 0 * sigma, "It is zero everywhere."),
        ("dnrt-derivation-2", mean_distance / sigma, "A factor is missing: sigma."),
        ("dnrt-derivation-2", -mean_distance * sigma, "There is a factor too many: sigma. And the sign is wrong."),
        ("dnrt-derivation-2", 2 * mean_distance, "It is twice as large as it should be."),
        ("dnrt-derivation-2", mean_distance / sympy.sqrt(sigma), "A factor is missing: the square root of sigma."),
        ("dnrt-derivation-2", mean_distance + sigma - 1, "It is right where sigma is 1, and wrong elsewhere."),
        ("dnrt-derivation-2", some, "The formula has the symbol some; it may have sigma."),
        ("dnrt-derivation-2", lambda sigma: 0.798 * sigma, NOT_EXACT),
        ("dnrt-derivation-2", 1.3 * mean_distance, "It is right up to a constant factor."),
        ("dnrt-derivation-3", lambda sigma, m: 0.0, "It is zero everywhere."),
        ("dnrt-derivation-3", 1.026 * mean_distance, "It is near, not exact, where m is 0.1, and wrong elsewhere."),
        ("dnrt-derivation-3", mean_distance * sympy.sqrt(1 + m**3), "It is right where m is 1, and wrong elsewhere."),
        (
            "dnrt-derivation-3",
            lambda m, sigma: sigma * math.sqrt(4 / math.pi / (2 - m)),
            "Two arguments have changed places: sigma and m.",
        ),
        (
            "dnrt-derivation-3",
            lambda m, sigma: sigma * math.sqrt(4 / math.pi / (2 - m)) / (m != 1.5),
            "Two arguments have changed places: sigma and m.",
        ),
        ("dnrt-derivation-3", some, f"{FOREIGN} some; it may have sigma, m."),
        (
            "dnrt-kernel-3",
            lambda g, x, c: (g * x * torch.exp(-((x + c[:, None]) ** 2) / 2)).sum(1),
            "It is too large by a factor of the square root of two pi.",
        ),
        (
            "dnrt-kernel-3",
            lambda g, x, c: (g * x * torch.exp(-((x + c[:, None]) ** 2)) / math.sqrt(2 * math.pi)).sum(1),
            "The exponent of the slope lacks its half.",
        ),
        (
            "dnrt-kernel-3",
            lambda g, x, c: (g * x * torch.exp((x + c[:, None]) ** 2 / 2) / math.sqrt(2 * math.pi)).sum(1),
            "The exponent of the slope lacks its minus.",
        ),
        (
            "dnrt-kernel-3",
            lambda g, x, c: slope_sum(g, x, c)[:, None],
            "Its shape is (2, 1); asked is (2,): a dimension of size one is too many.",
        ),
        ("dac-1", 2.5, "That is the slope where all three wires are on; here one of them is off."),
        ("dac-1", 3.25, "That is the value; asked is the slope."),
        ("dac-1", 1.5, "The sign is wrong."),
        ("dac-1", 0.5, "A wire is on where x + b is above zero, not where x is above b."),
        ("dac-1", -1.6, "It is too small."),
        ("dac-1", "falls", "This is of type str; asked is a number."),
        ("dac-2", lambda z, weight, bias: z.relu() @ weight.T, "The biases are missing."),
        (
            "dac-2",
            lambda z, weight, bias: ((z[:, None] + bias) * weight).sum(-1).relu(),
            "The ReLU stands behind the sum; every connection has its own.",
        ),
        ("dac-2", lambda z, weight, bias: (z[:, None] + bias).relu().sum(-1), "The weight is missing."),
        (
            "dac-2",
            lambda z, weight, bias: (z @ weight.T + bias.sum(1)).relu(),
            "That is the usual layer: the ReLU stands behind the sum, with one bias for each receiver.",
        ),
        (
            "dac-2",
            lambda z, weight, bias: z.relu() @ weight.T + bias.sum(1),
            "The ReLU sees the signal without its bias.",
        ),
        (
            "dac-2",
            lambda z, weight, bias: (z + bias[0]).relu() @ weight.T,
            "All receivers use the biases of the first one.",
        ),
        (
            "dac-2",
            lambda z, weight, bias: dac_linear(z, weight, bias).T,
            "It is transposed: its shape is (2, 3), asked is (3, 2).",
        ),
        (
            "dac-2",
            lambda z, weight, bias: (z[:, None] + bias).relu() * weight,
            "Its shape is (3, 2, 4); asked is (3, 2).",
        ),
        ("dac-2", lambda z, weight, bias: 2 * dac_linear(z, weight, bias), "It is twice as large as it should be."),
        ("dac-2", lambda z, bias, weight: dac_linear(z, weight, bias), f"{CHANGED} weight and bias."),
        ("dac-3", lambda weight: weight, "Its shape is (2, 3); asked is (2, 6)."),
        (
            "dac-3",
            lambda weight: blocks(weight).T,
            "It is transposed: its shape is (6, 2), asked is (2, 6).",
        ),
        (
            "dac-3",
            lambda weight: torch.cat([weight] * len(weight), 1),
            "Every unit listens to all copies; unit i hears copy i alone.",
        ),
        (
            "dac-3",
            lambda weight: blocks(weight).ne(0).double(),
            "The right places are found; the weights are those of the layer, not ones.",
        ),
        (
            "dac-3",
            lambda weight: torch.stack(
                [torch.kron(row, unit) for row, unit in zip(weight, torch.eye(len(weight)).double(), strict=True)]
            ),
            "The copies lie one after the other, each with all inputs; here the copies of one input lie together.",
        ),
        ("dac-derivation-1", 5, "That is the value at zero; the second hinge has begun by then."),
        ("dac-derivation-1", -9, "That is the weight of the second hinge."),
        ("dac-derivation-1", 3, "At x = −1 the line is higher than at zero: it falls."),
        ("dac-derivation-1", 3.5, "The first hinge has one unit of x to climb, not two."),
        ("dac-derivation-1", -7, "The sign is wrong."),
        ("dac-derivation-1", sympy.Symbol("b"), f"{FOREIGN} b; it may have none."),
        ("dac-derivation-2", r, "It need not be the same at both high corners."),
        ("dac-derivation-2", r - p - q, "The sign is turned."),
        ("dac-derivation-2", p + q + r, "That is a sum of three; the fourth stands on the side of r."),
        (
            "dac-derivation-2",
            lambda p, q, r: p + r - q,
            "That holds with the corners exchanged: (0, 0) and (1, 1) stand on one side.",
        ),
        ("dac-derivation-2", sympy.Symbol("x"), f"{FOREIGN} x; it may have p, q, r."),
        ("dac-derivation-2", 1, "This is of type int; asked is a function of (p, q, r)."),
        (
            "dac-derivation-3",
            lambda g, x, weight, bias: torch.einsum(
                "ri,imc,rimc->im", g, weight, (x[:, None] + bias[..., None] >= 0).double()
            ),
            "At the kink the slope is 0 here, as PyTorch takes it.",
        ),
        (
            "dac-derivation-3",
            lambda g, x, weight, bias: torch.einsum("ri,rimc->im", g, (x[:, None] + bias[..., None] > 0).double()),
            "The weight is missing.",
        ),
        (
            "dac-derivation-3",
            lambda g, x, weight, bias: g.T @ torch.ones(len(g), x.shape[1]).double() * weight.sum(-1),
            "The mask is missing: only connections that are on pass something.",
        ),
        (
            "dac-derivation-3",
            lambda g, x, weight, bias: bias_gradient(g, x, weight, bias) / len(g),
            "The samples are averaged; they are added up.",
        ),
        (
            "dac-derivation-3",
            lambda g, x, weight, bias: 2 * bias_gradient(g, x, weight, bias),
            "It is twice as large as it should be.",
        ),
        (
            "dac-derivation-3",
            lambda g, x, weight, bias: bias_gradient(g, x, weight, bias).T,
            "It is transposed: its shape is (3, 2), asked is (2, 3).",
        ),
        ("dac-kernel-1", 41_472, "Those are the weights alone."),
        ("dac-kernel-1", 41_568, "That has a bias for each output; here each pair has one."),
        (
            "dac-kernel-1",
            82_944,
            "That has a bias for each weight; here the nine positions of a pair share one.",
        ),
        ("dac-kernel-1", 46_081, "It is one too large."),
        ("dac-kernel-1", 92_160, "It is twice as large as it should be."),
        ("dac-kernel-2", 12_544, "That is float32."),
        ("dac-kernel-2", 56_448, "The nine positions of a kernel look at the same activation."),
        ("dac-kernel-2", 12.25, "That is the input alone: each receiver bends it by itself."),
        ("dac-kernel-2", 6576.668672, "Those are units of a million bytes; a MiB is a little more."),
        ("dac-kernel-2", 98, "That is one image; asked is the batch."),
        ("dac-kernel-2", 7000, "It is too large."),
        (
            "dac-kernel-3",
            lambda g, z, weight, bias: nn.functional.conv_transpose2d(g[None], weight, padding=1)[0],
            "The mask is missing: where z + b is not above 0, nothing passes.",
        ),
        (
            "dac-kernel-3",
            lambda g, z, weight, bias: nn.functional.conv_transpose2d(g[None], weight, padding=1)[0] * (z > 0),
            "The mask looks at z alone; each output has its own bias.",
        ),
        (
            "dac-kernel-3",
            lambda g, z, weight, bias: dac_back_by_loops(g, z, weight.flip(-1, -2), bias),
            "The kernel is turned round: the pixel q gets what g has at q − p, with p the position.",
        ),
        (
            "dac-kernel-3",
            lambda g, z, weight, bias: dac_back_by_loops(g, z, weight, -bias),
            "The bias has the wrong sign in the mask.",
        ),
        ("dac-kernel-3", lambda g, z, weight, bias: g, "Its shape is (2, 4, 5); asked is (3, 4, 5)."),
        (
            "dac-kernel-3",
            lambda g, z, weight, bias: -dac_back_by_loops(g, z, weight, bias),
            "The sign is wrong.",
        ),
        ("layeract-2", 3, "It is one too small."),
        ("layeract-2", 5, "That is more than a tenth."),
        ("layeract-2", 4.5, "Units are whole."),
        ("layeract-2", 22, "That is half of them, as ReLU closes in a symmetric row; here a tenth is the limit."),
        ("layeract-2", 30, "It is too large."),
        ("layeract-1", la_silu, "The tokens of a sequence share one row: a gate sees the tokens after it."),
        (
            "layeract-1",
            lambda y: nn.functional.silu(nn.functional.layer_norm(y, y.shape[-1:])),
            "The gate multiplies n; it multiplies y. That is SiLU after LayerNorm.",
        ),
        (
            "layeract-1",
            lambda y: y * torch.sigmoid((y - y.mean(-1, keepdim=True)) / y.std(-1, correction=0, keepdim=True)),
            "α is missing: a row of equal numbers is zero over zero.",
        ),
        ("layeract-1", lambda y: la_silu(y, dims=-1).float(), f"{DTYPE} torch.float32; {OF_ARGUMENTS}"),
        ("layeract-1", lambda y: la_silu(y, dims=-1).sum(-1), "Its shape is (2, 3); asked is (2, 3, 4)."),
        ("layeract-3", lambda y: la_silu(y[None])[0], "Every token sees the whole sequence, also what comes after it."),
        ("layeract-3", lambda y: la_silu(y), "A token sees itself alone; it may see those before it, too."),
        (
            "layeract-3",
            lambda y: causal(y)[-1],
            "Its shape is (4,); asked is (1, 4): a dimension of size one is missing.",
        ),
        (
            "layeract-3",
            lambda y: torch.where(y == y[0], causal(y), 0 * y),
            "It is right at 1 of the 4 points tried, and wrong elsewhere.",
        ),
        ("layeract-3", lambda y: -causal(y), "The sign is wrong."),
        ("layeract-derivation-1", 0.731, "That is with D = d; asked is D = d − 1."),
        ("layeract-derivation-1", 0.33, "That is the gate of the smaller one."),
        ("layeract-derivation-1", 0.707, "That is n; the gate is the sigmoid of it."),
        ("layeract-derivation-1", 0.6, "It is too small."),
        ("layeract-derivation-1", sympy.Symbol("D"), f"{FOREIGN} D; it may have none."),
        ("layeract-derivation-2", lambda t: t, "It is upside down."),
        ("layeract-derivation-2", lambda t: 1 / (1 + t**2), "That is the bound; asked is the c that gives it."),
        ("layeract-derivation-2", lambda t: 1.3 / t, "It is right up to a constant factor."),
        ("layeract-derivation-2", some, f"{FOREIGN} some; it may have t."),
        ("layeract-derivation-2", 1 / 3, "This is of type float; asked is a function of (t)."),
        (
            "layeract-derivation-3",
            lambda y, valid: la_silu(y, dims=-1) * valid[..., None],
            "Zero times NaN is NaN: choose with torch.where, do not multiply.",
        ),
        ("layeract-derivation-3", lambda y, valid: la_silu(y, dims=-1), "The padding is not zero."),
        (
            "layeract-derivation-3",
            lambda y, valid: torch.where(valid[..., None], la_silu(y, dims=-1), 0.0),
            "Its values are right, and its gradient is NaN: what does not count has to leave before the computation, "
            "and not only its result.",
        ),
        (
            "layeract-derivation-3",
            lambda y, valid: padded(y.detach(), valid),
            "Its values are right, and it has no gradient: compute with torch, and detach nothing.",
        ),
        (
            "layeract-derivation-3",
            lambda y, valid: padded((y + y.detach()) / 2, valid),
            "Its values are right, and its gradient is not.",
        ),
        ("layeract-derivation-3", lambda valid, y: padded(y, valid), f"{CHANGED} y and valid."),
        ("layeract-derivation-3", lambda y: y, "It does not take 2 arguments; asked is a function of (y, valid)."),
        ("layeract-derivation-3", lambda y, valid: 2 * padded(y, valid), "It is twice as large as it should be."),
        ("layeract-derivation-4", -0.4132, "That is LA-SiLU's place; asked is LA-HardSiLU's."),
        (
            "layeract-derivation-4",
            -0.1662,
            "That balances a whole mean; only half of a row's mean arrives in the output.",
        ),
        (
            "layeract-derivation-4",
            -1 / 3,
            "That counts a slope of one sixth everywhere; beyond three deviations there is none.",
        ),
        ("layeract-derivation-4", 0.3324, "The sign is wrong."),
        ("layeract-derivation-4", -0.5, "It is too small."),
        ("layeract-kernel-1", 7, "It is too small."),
        ("layeract-kernel-1", 11, "It is one too large."),
        ("layeract-kernel-1", 30, "It is three times as large as it should be."),
        ("layeract-kernel-1", -10, "The sign is wrong."),
        ("layeract-kernel-1", "10", "This is of type str; asked is a number."),
        (
            "layeract-kernel-2",
            2**-7,
            "That is the distance of neighbours; the nearer one is half of it away at most.",
        ),
        ("layeract-kernel-2", 2**-11, "That is a mean of ten thousand deviations; asked is ten times that."),
        ("layeract-kernel-2", 1e5, "It is too large."),
        (
            "layeract-kernel-2",
            1e5 * 2**-24,
            "That is a bound for any number of this size; the neighbours of this one are nearer.",
        ),
        ("layeract-kernel-2", 0.0, "It is too small."),
        (
            "layeract-kernel-3",
            lambda mean, squares, length: joined(mean, 0 * squares, length),
            "That is the spread of the chunks' means alone; within the chunks there is one, too.",
        ),
        (
            "layeract-kernel-3",
            lambda mean, squares, length: joined(mean, squares, length) * length.sum() / (length.sum() - 1),
            "It is wrong at every point tried.",
        ),
        (
            "layeract-kernel-3",
            lambda squares, mean, length: joined(mean, squares, length),
            f"{CHANGED} mean and squares.",
        ),
        ("layeract-kernel-3", lambda mean, squares, length: mean, "Its shape is (3,); asked is (2,)."),
        (
            "layeract-kernel-3",
            lambda mean, squares, length: joined(mean, squares, length)[1],
            "Its shape is (); asked is (2,).",
        ),
        ("multi-argument-1", lambda c: 4 * c[2], "That is the difference of the sums; asked is that of the means."),
        (
            "multi-argument-1",
            lambda c: c[2],
            "That is half of it: the product is 1 on one diagonal, −1 on the other.",
        ),
        ("multi-argument-1", lambda c: -2 * c[2], "The sign is wrong: asked is green less pink."),
        (
            "multi-argument-1",
            lambda c: c[0] * c[1] - c[2] ** 2 / 4,
            "That is the curvature K; it does not decide it.",
        ),
        ("multi-argument-1", lambda c: 2 * c[0], "It is wrong at every point tried."),
        ("multi-argument-1", 2, "This is of type int; asked is a function of (c)."),
        (
            "multi-argument-2",
            lambda x, c: quadratic_by_a_loop(torch.stack(x.chunk(2, 1), -1).flatten(1), c),
            "The arguments of a unit stand side by side; here they come from two halves.",
        ),
        (
            "multi-argument-2",
            lambda x, c: quadratic_by_a_loop(x, c) - c[5],
            "The constant c₆ is missing.",
        ),
        (
            "multi-argument-2",
            lambda x, c: quadratic_by_a_loop(x, c[[1, 0, 2, 4, 3, 5]]),
            "The two arguments have changed places.",
        ),
        ("multi-argument-2", lambda x, c: quadratic_by_a_loop(x, c).mean(1), "Its shape is (3,); asked is (3, 2)."),
        ("multi-argument-2", lambda x: x, "It does not take 2 arguments; asked is a function of (x, c)."),
        ("multi-argument-3", 64 * 101, "That is for units with one argument."),
        ("multi-argument-3", 128 * 100, "The biases are missing."),
        ("multi-argument-3", 128 * 100 + 64, "That has one bias for each unit; each of its two sums has one."),
        ("multi-argument-3", 128 * 100 + 100, "That has a bias for each input; each sum has one."),
        ("multi-argument-3", 128 * 101 + 4417, "The inner network is counted, too; asked is the linear layer."),
        ("multi-argument-derivation-1", 1218, "It is one too large."),
        ("multi-argument-derivation-1", -1217, "The sign is wrong."),
        ("multi-argument-derivation-1", 4417, "It is too large."),
        ("multi-argument-derivation-1", "64n + 4289", "This is of type str; asked is a number."),
        ("multi-argument-derivation-1", sympy.Symbol("n"), f"{FOREIGN} n; it may have none."),
        ("multi-argument-derivation-2", 1, "This is of type int; asked is a function of (t)."),
        (
            "multi-argument-derivation-2",
            lambda x1, x2: x1 * x2,
            "It does not take 1 arguments; asked is a function of (t).",
        ),
        (
            "multi-argument-derivation-2",
            lambda t: t / 2,
            "It rises from corner to corner; a function with these values must fall and rise.",
        ),
        ("multi-argument-derivation-2", lambda t: t**2 / 2 + 3, "It is off by the same amount everywhere."),
        ("multi-argument-derivation-2", lambda t: torch.tanh(t), "It is wrong at every point tried."),
        ("multi-argument-derivation-2", lambda t: t**2 - 2, "It is twice as large as it should be."),
        (
            "multi-argument-derivation-2",
            lambda t: torch.where(t > 0, 1.0, -1.0).double(),
            "It is right at 2 of the 3 points tried, and wrong elsewhere.",
        ),
        ("multi-argument-derivation-2", sympy.Symbol("x"), f"{FOREIGN} x; it may have t."),
        ("multi-argument-derivation-3", -0.0183, "It is too small."),
        ("multi-argument-derivation-3", -0.00935, NOT_EXACT),
        ("multi-argument-derivation-3", 0.0, "It is too large."),
        ("multi-argument-derivation-3", math.nan, "It is NaN."),
        ("multi-argument-derivation-3", lambda x: x, "This is a function; asked is a number."),
        ("multi-argument-kernel-1", 4353, "It is one too large."),
        ("multi-argument-kernel-1", -4352, "The sign is wrong."),
        ("multi-argument-kernel-1", 64 * 2 + 64 * 64, "It is too small."),
        ("multi-argument-kernel-1", "4352", "This is of type str; asked is a number."),
        ("multi-argument-kernel-1", lambda: 64 * 68, "This is a function; asked is a number."),
        ("multi-argument-kernel-2", 15, "Those are the bytes of the arguments; asked are those of the hidden numbers."),
        ("multi-argument-kernel-2", 1006.63296, "Those are units of a million bytes; a MiB is a little more."),
        ("multi-argument-kernel-2", 961, "It is one too large."),
        ("multi-argument-kernel-2", 1000, "It is too large."),
        ("multi-argument-kernel-2", 96, "It is a tenth of what it should be."),
        (
            "multi-argument-kernel-3",
            lambda grad, h, z, w, c: grad[:, None] * (c * (z > 0)) @ w,
            "The slope of the first ReLU is missing: where h is 0, nothing passes.",
        ),
        (
            "multi-argument-kernel-3",
            lambda grad, h, z, w, c: (grad[:, None] * (c @ w)) * (h > 0),
            "The slope of the second ReLU is missing: where z is not above 0, nothing passes.",
        ),
        (
            "multi-argument-kernel-3",
            lambda grad, h, z, w, c: (w @ (grad[:, None] * (z > 0) * c).T).T * (h > 0),
            "The matrix w is transposed: the sum runs over j, its rows.",
        ),
        (
            "multi-argument-kernel-3",
            lambda grad, h, z, w, c: ((grad[:, None] * (z > 0) * c) @ w * (h > 0)).T,
            "It is transposed: its shape is (3, 2), asked is (2, 3).",
        ),
        (
            "multi-argument-kernel-3",
            lambda grad, z, h, w, c: (grad[:, None] * (z > 0) * c) @ w * (h > 0),
            "Two arguments have changed places: h and z.",
        ),
        (
            "multi-argument-kernel-3",
            lambda grad, h, z, w, c: h,
            "It is nowhere right as a whole: 20 of 50 numbers are.",
        ),
        ("kernels-1", 40, "So many blocks there are; asked are threads."),
        ("kernels-1", 16, "So many threads of the last block do have an element; asked are the others."),
        ("kernels-1", -16, "With one block less, elements would be left without a thread: round up."),
        ("kernels-1", 241, "It is one too large."),
        ("kernels-1", -240, "The sign is wrong."),
        (
            "kernels-2",
            lambda stride: 1 / stride,
            "A lane needs one sector at most: far enough apart, it gets no worse.",
        ),
        ("kernels-2", lambda stride: 0.125, "Lanes that are near each other share a sector."),
        (
            "kernels-2",
            lambda stride: 4 * min(stride, 8),
            "That is the number of sectors; asked is which share of their bytes is used.",
        ),
        ("kernels-2", lambda stride: 2 * used(stride), "It is twice as large as it should be."),
        (
            "kernels-2",
            lambda stride: 1 / stride if stride < 12 else 0.0,
            "It is zero at 2 of the 6 points tried, and right elsewhere.",
        ),
        (
            "kernels-3",
            lambda y: _over_its_sum(y.exp()),
            "The largest element is not subtracted: e¹⁰⁰⁰ is infinite in float32.",
        ),
        (
            "kernels-3",
            lambda y: _over_its_sum((y - y.amax(-1, keepdim=True).clamp_min(0)).exp()),
            "A lane without an element put a 0 into the maximum; in a row of negative numbers that is the largest.",
        ),
        (
            "kernels-3",
            lambda y: softmax(y).double(),
            f"{DTYPE} torch.float64; asked is torch.float32, that of the arguments.",
        ),
        ("kernels-3", lambda y: softmax(y).sum(-1), "Its shape is (3,); asked is (3, 40)."),
        (
            "kernels-3",
            lambda y: y.softmax(0),
            "The sums go down the columns; a row is what lies along the last dimension.",
        ),
        ("kernels-3", lambda y: None, "It returns None: is there a return?"),
        ("kernels-3", lambda y: y.clone(), "That is y itself: the kernel still copies."),
        (
            "kernels-3",
            lambda y: _over_its_sum(
                (y - torch.stack([y[:, j % 32 :: 32].amax(-1) for j in range(y.shape[1])], 1)).exp()
            ),
            "Each lane subtracts a maximum of its own: the maxima of the lanes have to meet, too.",
        ),
        ("kernels-3", lambda y: _over_its_sum((y - y[:, :1]).exp()), "It is NaN at 1 of the 8 points tried."),
        (
            "kernels-3",
            lambda y: torch.where(torch.arange(y.shape[1]) < 64, softmax(y), math.nan),
            "It is NaN at 2 of the 8 points tried.",
        ),
    ],
)
def test_what_is_wrong_is_said(name: str, answer: Any, words: str) -> None:
    verdict = check(name, answer)
    assert not verdict
    assert repr(verdict) == words


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("dac-derivation-1", (-9, -2, 3, 3.5, 5, 9)),
        ("dnrt-kernel-1", (1, 2, 6, 8, 12, 16, 28, 32, 1536, 3072)),
        ("dnrt-kernel-2", (1, 2, 4, 6, 8, 12, 24, 32, 96)),
        ("layeract-2", (0, 4.5, 5, 22, 41, 44, 45)),
        ("layeract-kernel-1", (2, 4, 5, 6, 8, 12, 20, 80)),
        ("multi-argument-kernel-1", (192, 4096, 4160, 4288, 4481, 8576, 8704)),
        ("multi-argument-kernel-2", (7.5, 15, 30, 60, 240, 480, 1920)),
        ("kernels-1", (-16, 0, 16, 40, 256, 10_240)),
    ],
)
def test_a_likely_small_number_is_not_measured_against_the_right_one(name: str, answers: tuple[int, ...]) -> None:
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


def test_ids_belong_to_pages_of_their_rooms() -> None:
    from companion import rooms

    modules = rooms.studies("exercises")
    for name, module in modules.items():
        page = rf"{name.replace('_', '-')}(?:-derivation|-kernel)?" if name in rooms.ROOMS else r"[a-z-]+"
        for exercise in module.EXERCISES:
            assert isinstance(exercise, Exercise)
            assert re.fullmatch(rf"{page}-\d+", exercise.id)
    assert len(ALL) == sum(len(module.EXERCISES) for module in modules.values())
