"""The registry of formulas: its names, its errors, its command line; and the page says what SymPy means."""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

import mpmath
import pytest
import sympy

from companion.rooms import ROOMS, studies
from companion.study import symbolic
from companion.study.symbolic import AnyFunction, Expected, Holds, Partial
from tests.cases import together


class LatexReader:
    """Compute the number that a line of our LaTeX denotes, without SymPy."""

    SUM = r"\\sum_\{(\w)=(-? ?\w)\}\^\{(\w(?: - 1)?)\}"
    TOKENS = r"z_\{\\min\}|\\operatorname\{\w+\}|\\varphi'|\\[a-zA-Z]+|\d+\.?\d*|s'|\S"

    def __init__(
        self,
        names: Mapping[str, mpmath.mpf],
        functions: Mapping[str, Callable[..., mpmath.mpf]],
        elements: Mapping[str, Callable[..., mpmath.mpf]] | None = None,
        indices: Mapping[str, int] | None = None,
    ) -> None:
        self.names = names
        self.functions = functions
        self.elements = elements or {}
        self.indices = dict(indices or {})
        # Longest first, so that a name with an index is not read as the name and a bracket.
        self.element = "|".join(rf"({re.escape(base)})_\{{([\w, +-]+)\}}" for base in self.elements) or "(?!)"
        long = "|".join(
            re.escape(name)
            for name in sorted({*names, *functions}, key=len, reverse=True)
            if "{" in name and "(" not in name
        )
        whole = "|".join(part for part in (long, self.SUM, self.element, self.TOKENS) if part)
        self.tokenizer = re.compile(whole)

    def read(self, text: str) -> mpmath.mpf:
        text = text.replace(r"\left|", "⟨").replace(r"\right|", "⟩")
        text = text.replace(r"\left", "").replace(r"\right", "")
        self.tokens = [found[0] for found in self.tokenizer.finditer(text)]
        result = self.sum()
        assert not self.tokens, f"unread: {self.tokens}"
        return result

    def peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def take(self, expected: str = "") -> str:
        token = self.tokens.pop(0)
        assert expected in ("", token), f"{expected} expected, not {token}"
        return token

    def sum(self) -> mpmath.mpf:
        negative = self.peek() == "-" and bool(self.take())
        total = self.product() * (-1 if negative else 1)
        while self.peek() in ("+", "-"):
            total += self.product() if self.take() == "+" else -self.product()
        return total

    def product(self) -> mpmath.mpf:
        result = self.power()
        while self.peek() not in ("", "+", "-", ")", "}", ",", "⟩", "]", r"\leq", ">"):
            result *= self.power()
        return result

    def power(self) -> mpmath.mpf:
        base = self.atom()
        return base ** self.group() if self.peek() == "^" and self.take() else base

    def group(self) -> mpmath.mpf:
        self.take("{")
        result = self.sum()
        self.take("}")
        return result

    def arguments(self) -> Iterator[mpmath.mpf]:
        braces = self.peek() == "{" and bool(self.take())
        self.take("(")
        yield self.sum()
        while self.peek() == ",":
            self.take()
            yield self.sum()
        self.take(")")
        if braces:
            self.take("}")

    def index(self, text: str) -> int:
        """Read an index: a number, a letter, or a sum of them."""
        terms = re.findall(r"([+-]?)(\w+)", text.replace(" ", ""))
        return sum((-1 if sign == "-" else 1) * self.whole(term) for sign, term in terms)

    def whole(self, text: str) -> int:
        return int(text) if text.isdigit() else self.indices[text] if text in self.indices else int(self.names[text])

    def sum_over(self, index: str, low: str, high: str) -> mpmath.mpf:
        """Read the product behind a sum sign once for each value of the index."""
        behind, total, outside, names = self.tokens, mpmath.mpf(0), self.indices, self.names
        for value in range(self.index(low), self.index(high) + 1):
            self.tokens, self.indices = list(behind), outside | {index: value}
            self.names = names | {index: mpmath.mpf(value)}
            total += self.product()
        self.indices, self.names = outside, names
        return total

    def atom(self) -> mpmath.mpf:
        token = self.take()
        if token in self.names and not (token in self.functions and self.peek() in ("(", "{")):
            return self.names[token]
        if found := re.fullmatch(self.SUM, token):
            return self.sum_over(*found.groups())
        if found := re.fullmatch(self.element, token):
            base, written = (group for group in found.groups() if group)
            return self.elements[base](*map(self.index, re.split(r",|(?<=\w) (?=\w)", written)))
        if token == "[":
            left, relation, right = self.sum(), self.take(), self.sum()
            self.take("]")
            return mpmath.mpf({r"\leq": left <= right, ">": left > right}[relation])
        if token[0].isdigit():
            return mpmath.mpf(token)
        if token == "(":
            self.tokens.insert(0, "(")
            return next(iter(list(self.arguments())))
        if token == "⟨":
            result = abs(self.group())
            self.take("⟩")
            return result
        if token == r"\frac":
            return self.group() / self.group()
        if token == r"\sqrt":
            return mpmath.sqrt(self.group())
        if token == "e" and self.peek() == "^":
            self.take()
            return mpmath.exp(self.group())
        if token == r"\ln" and self.peek() != "(":
            return mpmath.log(self.atom())
        if token in self.functions and self.peek() in ("(", "{"):
            return self.functions[token](*self.arguments())
        return self.names[token]


STANDARD = {
    r"\cos": mpmath.cos,
    r"\exp": mpmath.exp,
    r"\ln": mpmath.log,
    r"\max": max,
    r"\min": min,
    r"\sin": mpmath.sin,
    r"\operatorname{acos}": mpmath.acos,
    r"\operatorname{erf}": mpmath.erf,
    r"\operatorname{erfc}": mpmath.erfc,
    r"\operatorname{sign}": mpmath.sign,
    "W": mpmath.lambertw,
}
# A row of three elements, and statistics that need not fit it: the reader does not know what they are.
INDICES = {"i": 2, "j": 1, "d": 3, "D": 2, "C": 2}
# A layer with two outputs and three inputs, and what else its formulas count.
INDICES |= {"n": 2, "m": 3, "N": 2, "K": 3, "W": 2, "P": 4, "L": 3, "A": 5, "B": 7, "H": 9}
INDICES |= {"k": 1, "l": 1, "h": 2, "v": 3, "p": 1, "q": 2}
VALUES = {"z": -0.8, "kappa": 1.3, "lambda": 0.7, "x": 0.4, "beta": -1.5, "a": 0.3, "t": 0.6, "p": 0.2, "m": 0.1}


def readable_sides() -> list[tuple[str, sympy.Expr, bool]]:
    unread = (sympy.Derivative, sympy.Limit, sympy.Integral, Partial, Expected)
    constants = (sympy.Symbol("E_l"), sympy.Symbol(r"\operatorname{E} a", real=True))
    return [
        (formula.name, side, not formula.definition and side is not formula.lhs)
        for formula in symbolic.formulas()
        for side in (formula.lhs, *formula.steps, formula.rhs)
        if not sympy.sympify(side).has(*unread)
        and side not in constants
        and sympy.oo not in sympy.sympify(side).atoms()
    ]


def some_number(name: str) -> mpmath.mpf:
    """A number between 0.3 and 1.3 that belongs to a name."""
    return mpmath.mpf(zlib.crc32(name.encode()) % 1000) / 1000 + mpmath.mpf("0.3")


def element(base: str, *indices: int) -> mpmath.mpf:
    if base == r"\delta":
        return mpmath.mpf(indices[0] == indices[1])
    number = some_number(f"{base} {indices}") / 2
    return number if base == "A" else number - (sum(indices) % 2)  # A is a probability


def logistic(x: mpmath.mpf) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-x))


def logistic_slope(x: mpmath.mpf) -> mpmath.mpf:
    return logistic(x) * logistic(-x)


# For any function that has a derivative, and for the derivative.
studies("formulas")
STAND_INS = {each.__name__: logistic_slope if each.slope is None else logistic for each in AnyFunction.__subclasses__()}


def is_size(symbol: sympy.Symbol) -> bool:
    """Whether it is an index or a size. Elsewhere the letter p is a probability, and m a momentum."""
    return symbol.name in INDICES and (symbol.is_integer or symbol.name not in VALUES)


def value(symbol: sympy.Symbol) -> mpmath.mpf:
    if is_size(symbol):
        return mpmath.mpf(INDICES[symbol.name])
    return mpmath.mpf(VALUES.get(symbol.name) or some_number(symbol.name))


@cache
def number(expression: sympy.Expr) -> mpmath.mpf:
    expression = symbolic.expand(sympy.sympify(expression))
    labels = {each.base.label for each in expression.atoms(sympy.Indexed)}
    indices = {symbol: INDICES[symbol.name] for symbol in expression.free_symbols - labels if is_size(symbol)}
    expression = expression.subs(indices).doit()
    expression = expression.replace(Holds, lambda relation: sympy.Piecewise((1, relation), (0, True)))
    names = sorted(expression.free_symbols, key=str)
    values = [
        element(str(name.base.label), *map(int, name.indices)) if isinstance(name, sympy.Indexed) else value(name)
        for name in names
    ]
    stand_ins = sympy.symbols(f"slot:{len(names)}")
    expression = expression.xreplace(dict(zip(names, stand_ins, strict=True)))
    function = sympy.lambdify(stand_ins, expression, [STAND_INS, "mpmath"])
    return mpmath.mpf(function(*values))


def reader_for(side: sympy.Expr) -> LatexReader:
    side = sympy.sympify(side)
    calls = side.atoms(sympy.core.function.AppliedUndef)
    bases = {each.base.label for each in side.atoms(sympy.Indexed)}
    names = {symbolic.latex(symbol): value(symbol) for symbol in side.atoms(sympy.Symbol) - bases}
    elements = {str(each.base.label): partial(element, str(each.base.label)) for each in side.atoms(sympy.Indexed)}
    elements |= {r"\delta": partial(element, r"\delta")} if side.has(sympy.KroneckerDelta) else {}
    bound = {index for total in side.atoms(sympy.Sum) for index in total.variables}
    whole = [call for call in calls if not call.free_symbols & bound]
    names |= {symbolic.latex(call, short=True): number(call) for call in whole} | {r"\pi": mpmath.mpf(mpmath.pi)}
    functions = {}
    for call in calls:
        printed = symbolic.latex(call).split("(")[0]
        functions[printed] = lambda *inputs, call=call: number(call.func(*inputs))
    functions |= {type(call).printed: STAND_INS[type(call).__name__] for call in side.atoms(AnyFunction)}
    return LatexReader(names, STANDARD | functions, elements, INDICES)


@together("name, side, short", readable_sides())
def test_the_printed_formula_denotes_the_number_that_sympy_computes(name, side, short):
    printed = symbolic.latex(side, short=short)
    assert mpmath.almosteq(reader_for(side).read(printed), number(side), rel_eps=1e-12), printed


def test_the_reader_of_these_tests_reads_signs_powers_and_fractions():
    reader = LatexReader({"x": mpmath.mpf(3)}, STANDARD)
    assert reader.read(r"- \frac{1 + x}{2} - x^{2} \left(2 - x\right)") == -2 + 9
    assert reader.read(r"\ln x + 2 e^{- x}") == mpmath.log(3) + 2 * mpmath.exp(-3)


def test_the_reader_of_these_tests_reads_sums_over_elements():
    reader = LatexReader({"d": mpmath.mpf(3)}, STANDARD, {"y": lambda k: mpmath.mpf(k)}, {"i": 2, "j": 7})
    assert reader.read(r"\frac{1}{d} \sum_{j=1}^{d} y_{j}^{2} + y_{j}") == pytest.approx(14 / 3 + 7)
    assert reader.read(r"\sum_{j=1}^{d} \left(y_{j} - y_{i}\right) y_{i}") == 0
    assert reader.read(r"\sum_{j=1}^{d} \left[y_{j} \leq 2\right]") == 2


def test_the_reader_of_these_tests_reads_sums_of_indices_and_masks():
    reader = LatexReader({}, STANDARD, {"z": lambda j, k: mpmath.mpf(10 * j + k)}, {"i": 2, "h": 4, "l": 1})
    assert reader.read(r"\sum_{a=- l}^{l} \sum_{c=1}^{i} z_{c,h + a}") == sum(
        10 * c + 4 + a for a in (-1, 0, 1) for c in (1, 2)
    )
    assert reader.read(r"z_{i,h - l} \left[z_{i,h} > 24\right] + \left[z_{i,h} > 23\right]") == 1


def test_sums_over_several_indices_have_a_sign_each_the_outer_one_first():
    j, k, n = sympy.symbols("j k n")
    a = sympy.IndexedBase("a")
    inner = sympy.Sum(a[j, k], (k, 1, j))
    assert symbolic.latex(sympy.Sum(inner, (j, 1, n))) == r"\sum_{j=1}^{n} \sum_{k=1}^{j} a_{j,k}"
    assert symbolic.latex(sympy.Sum(1 + a[j, k], (k, 1, n))) == r"\sum_{k=1}^{n} \left(1 + a_{j,k}\right)"


def test_a_formula_prints_with_the_symbols_of_the_book():
    printed = symbolic.get("apa-eta").latex()
    assert printed == r"\eta(z, \kappa, \lambda) = \left(1 + \lambda e^{- \kappa z}\right)^{- \frac{1}{\lambda}}"


def test_markdown_is_a_labelled_block():
    formula = symbolic.get("apa-silu")
    assert formula.markdown() == f"$$\n{formula.latex()}\n$$ (eq-apa-silu)"


def test_a_derivation_is_aligned_with_a_line_per_step():
    formula = symbolic.get("apa-d-lambda")
    lines = formula.latex().splitlines()
    assert lines[0] == r"\begin{aligned}"
    assert len(lines) == 2 + len(formula.steps) + 1
    assert all(line.count("& =") == 1 for line in lines[1:-1])


def test_a_long_formula_breaks_before_its_relation():
    assert symbolic.get("apa-minimum").latex().splitlines()[2].startswith(r"& \quad = ")


def test_a_condition_stands_behind_the_formula():
    assert symbolic.get("apa-left-tail").latex().endswith(r"\qquad \left(\kappa > 0\right)")


def test_a_tall_formula_has_a_line_for_each_term_and_for_its_condition():
    printed = symbolic.get("dnrt-jacobian").latex().splitlines()
    assert printed[1].startswith(r"\frac{\partial y_{i}}{\partial x_{j}} & = w_{j}")
    assert printed[2].startswith(r"& + \left(s(c + x_{i})")
    assert symbolic.get("multi_argument-xor-linear").latex().splitlines()[1] == r"& g(1, 1) + g(-1, -1) \\"
    less = symbolic.Formula("less", symbolic.z, 1 - symbolic.kappa, "here", condition=symbolic.kappa > 0, tall=True)
    assert less.latex().split("\n")[1:-1] == [r"z & = 1 \\", r"& - \kappa \\", r"& \text{for } \kappa > 0"]


def test_a_broken_formula_has_its_relation_on_a_second_line():
    less = symbolic.Formula("less", symbolic.z, 1 - symbolic.kappa, "here", broken=True)
    assert less.latex().split("\n")[1:-1] == [r"& z \\", r"& \quad = 1 - \kappa"]


def test_a_formula_is_printed_as_one_would_write_it():
    m, mu, x = sympy.Symbol("m"), sympy.Symbol(r"\mu", real=True), sympy.Symbol("x", real=True)
    means, values = (sympy.IndexedBase(name, real=True) for name in (r"\mu", "x"))
    assert symbolic.latex(m * values[1] + (1 - m) * means[0]) == r"\left(1 - m\right) \mu_{0} + m x_{1}"
    assert symbolic.latex(abs(x - mu)) == symbolic.latex(abs(mu - x)) == r"\left|{x - \mu}\right|"
    assert symbolic.latex(abs(values[1] - means[0])) == r"\left|{x_{1} - \mu_{0}}\right|"
    assert symbolic.latex(x * sympy.sqrt(2 / sympy.pi)) == r"x \sqrt{\frac{2}{\pi}}"
    assert symbolic.latex(2 * x / sympy.sqrt(sympy.pi * (2 - m))) == r"\frac{2 x}{\sqrt{\pi \left(2 - m\right)}}"


def test_a_published_form_is_a_formula_of_its_own_that_asks():
    formula, published = symbolic.get("apa-d-lambda"), symbolic.get("apa-d-lambda-published")
    assert published.rhs == formula.published
    assert published.lhs == formula.lhs
    assert r"\overset{?}{=}" in published.latex()


def test_no_formula_contains_what_would_end_its_block():
    for formula in symbolic.formulas():
        assert "$" not in formula.latex()
        assert "\n\n" not in formula.latex()


def test_every_formula_has_a_source_and_a_name_that_begins_with_its_mechanism():
    for formula in symbolic.formulas():
        assert formula.source
        assert formula.name.split("-")[0] in ROOMS


def test_formulas_selects_by_prefix_in_the_order_of_registration():
    names = [formula.name for formula in symbolic.formulas("apa-d-z")]
    assert names[:2] == ["apa-d-z", "apa-d-z-z"]
    assert all(name.startswith("apa-d-z") for name in names)


def test_a_taken_name_is_refused():
    with pytest.raises(ValueError, match="name: 'apa-eta' is already registered"):
        symbolic.register("apa-eta", symbolic.z, symbolic.z, source="a test")


def test_an_unknown_name_is_refused_with_the_nearest_names():
    with pytest.raises(KeyError, match="no formula is called 'apa-aglo'; did you mean apa-aglu"):
        symbolic.get("apa-aglo")
    with pytest.raises(KeyError, match="list` lists all"):
        symbolic.get("1234")


def test_an_unknown_relation_is_refused():
    with pytest.raises(ValueError, match="relation: '~' is unknown; allowed are ="):
        symbolic.register("apa-new", symbolic.z, symbolic.z, source="a test", relation="~")


@pytest.mark.parametrize("lhs", [symbolic.z, sympy.Function("new")(symbolic.z, symbolic.z), sympy.Function("new")(1)])
def test_a_definition_of_something_else_than_a_function_of_symbols_is_refused(lhs):
    with pytest.raises(ValueError, match="is not a function of distinct symbols"):
        symbolic.register("apa-new", lhs, symbolic.z, source="a test", definition=True)


def test_a_second_definition_of_a_function_is_refused():
    eta = symbolic.get("apa-eta").lhs
    with pytest.raises(ValueError, match="the function 'eta' in 'apa-new' already has a definition"):
        symbolic.register("apa-new", eta, symbolic.z, source="a test", definition=True)


def test_a_second_notation_for_a_function_is_refused():
    with pytest.raises(ValueError, match="name: 'eta' is already a function with another notation"):
        symbolic.function("eta", symbolic.z)


def test_expand_leaves_no_defined_function_and_keeps_other_arguments():
    eta = symbolic.get("apa-eta").lhs.func
    expanded = symbolic.expand(eta(2, symbolic.kappa, 1))
    assert expanded == 1 / (1 + sympy.exp(-2 * symbolic.kappa))


def test_the_command_line_prints_a_formula_and_lists_all(capsys):
    assert symbolic.main(["latex", "apa-aglu"]) == 0
    assert capsys.readouterr().out == symbolic.get("apa-aglu").latex() + "\n"
    assert symbolic.main(["list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(symbolic.formulas())


def test_the_command_line_refuses_an_unknown_name(capsys):
    with pytest.raises(SystemExit, match="2"):
        symbolic.main(["latex", "apa-aglo"])
    assert "did you mean apa-aglu" in capsys.readouterr().err
