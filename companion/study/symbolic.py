"""The registry of formulas: what the book prints, as SymPy objects that tests can compute with.

A mechanism registers its mathematics in ``companion/<mechanism>/study/formulas.py``. The registry loads these
modules when somebody asks for a formula. Every display formula on a page is `Formula.latex` of one that is
registered here, so that the formula a reader sees is the one that the tests compare with autograd and with
the kernels.

From a shell::

    python -m companion.study.symbolic list
    python -m companion.study.symbolic latex apa-aglu
"""

# The methods of a SymPy printer carry the names of SymPy's classes.

import argparse
import difflib
import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.printing.latex import LatexPrinter

from companion import rooms

__all__ = [
    "AnyFunction",
    "Expected",
    "Formula",
    "Holds",
    "Partial",
    "expand",
    "formulas",
    "function",
    "get",
    "kappa",
    "lam",
    "latex",
    "register",
    "sigma",
    "z",
]

z = sympy.Symbol("z", real=True)
kappa = sympy.Symbol("kappa", real=True)
lam = sympy.Symbol("lambda", positive=True)

RELATIONS = {"=": "=", "≤": r"\le", "<": "<", "≥": r"\ge", ">": ">", "?": r"\overset{?}{=}"}
_LONGEST_LINE = 150  # characters of LaTeX; a longer formula breaks before its relation sign
_GREEK = re.compile(r"\\(?:alpha|beta|delta|epsilon|varepsilon|mu|rho|sigma|tau)(?![A-Za-z])")
_SHORT_SIDE = 12  # signs that a reader sees; behind a left side of more, the right one begins on a line of its own


class Partial(sympy.Expr):  # type: ignore[misc]
    """A derivative by a name, through everything that depends on it.

    SymPy's own would be zero: it does not see that one name stands for a function of others. The mechanism that
    gives the names a meaning takes the derivative.
    """

    is_commutative = True
    is_real = True

    def __new__(cls, of: Any, by: Any) -> "Partial":
        """Make the derivative of one name by another; nothing is evaluated."""
        made: Partial = sympy.Expr.__new__(cls, sympy.sympify(of), sympy.sympify(by))
        return made

    def _latex(self, printer: Any) -> str:
        of, by = (printer._print(argument) for argument in self.args)
        return rf"\frac{{\partial {of}}}{{\partial {by}}}"


class Holds(sympy.Expr):  # type: ignore[misc]
    """Iverson's bracket: 1 where a relation holds, 0 where it does not."""

    is_commutative = True
    is_real = True

    def __new__(cls, relation: Any) -> Any:
        """Make the bracket of a relation; it is a number as soon as the relation is decided."""
        relation = sympy.sympify(relation)
        if relation in (sympy.true, sympy.false):
            return sympy.Integer(bool(relation))
        return sympy.Expr.__new__(cls, relation)

    def _latex(self, printer: Any) -> str:
        return rf"\left[{printer._print(self.args[0])}\right]"


class AnyFunction(sympy.Function):  # type: ignore[misc]
    """A function of one argument, any that has a derivative: it stays a name, and so does the derivative.

    Attributes
    ----------
    printed : str
        Its name in LaTeX.
    slope : type of AnyFunction or None
        The derivative. Without one, SymPy's own sign stands for it.

    Examples
    --------
    >>> class Slope(AnyFunction):
    ...     printed = "f'"
    >>> class Curve(AnyFunction):
    ...     printed, slope = "f", Slope
    >>> latex(Curve(2 * z).diff(z))
    "2 f'(2 z)"
    """

    nargs = 1
    is_real = True
    printed: str
    slope: "type[AnyFunction] | None" = None

    def fdiff(self, argindex: int = 1) -> Any:
        """Return the derivative by the argument."""
        return super().fdiff(argindex) if self.slope is None else self.slope(self.args[0])

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        name = self.printed if exp is None else f"{self.printed}^{{{exp}}}"
        argument = printer._print(self.args[0])
        return rf"{name}\left({argument}\right)" if "frac" in argument else f"{name}({argument})"


class Expected(sympy.Expr):  # type: ignore[misc]
    """An expected value over all Z, which are independent and standard normal."""

    is_commutative = True
    is_real = True

    def _latex(self, printer: Any) -> str:
        return rf"\operatorname{{E}}\left[{printer._print(self.args[0])}\right]"


@dataclass(frozen=True)
class _Notation:
    """How a function is printed, and with which arguments it may be printed by its name alone."""

    latex: str
    arguments: tuple[Any, ...]
    abbreviation: bool


_notations: dict[str, _Notation] = {}
_definitions: dict[str, tuple[tuple[Any, ...], Any]] = {}
_registry: dict[str, "Formula"] = {}


@dataclass(frozen=True)
class Formula:
    """A statement about two expressions, with its source.

    Attributes
    ----------
    name : str
        For example "apa-aglu". On a page its label is "eq-" followed by the name.
    lhs, rhs : sympy.Expr
        What stands left and right of the relation.
    source : str
        The paper and its equation, or how the statement follows.
    steps : tuple of sympy.Expr
        Expressions between the two sides, each equal to the next: a derivation.
    relation : str
        One of "=", "≤", "<", "≥", ">", and "?" for an equality that a paper prints and that is false.
    condition : sympy relation or None
        When the statement holds, where it does not hold always: it is printed behind the formula.
    published : sympy.Expr or None
        The right-hand side in the paper, where its value differs. It is a formula of its own, named
        ``<name>-published`` with the relation "?".
    note : str
        What a reader should know besides.
    definition : bool
        Whether the left-hand side is a function that the right-hand side defines.
    tall : bool
        Whether each term of the last side, and the condition, has a line of its own: in one line a phone would cut it.
        A long left-hand side has one, too.
    broken : bool
        Whether the relation begins a second line: a phone would cut one that is shorter than those that break anyway.
    """

    name: str
    lhs: Any
    rhs: Any
    source: str
    steps: tuple[Any, ...] = ()
    relation: str = "="
    condition: Any = None
    published: Any = None
    note: str = ""
    definition: bool = False
    tall: bool = False
    broken: bool = False

    @property
    def label(self) -> str:
        """The label of the equation on a page."""
        return f"eq-{self.name}"

    def latex(self) -> str:
        """Return the display formula as LaTeX.

        The right-hand side of a definition names every argument. Elsewhere on the right, a function of its
        usual arguments stands by its name alone: η is short for η(z, κ, λ).

        Returns
        -------
        str
            One line, or an ``aligned`` environment where that would be long, or tall is asked for, or there are steps.

        Examples
        --------
        >>> print(get("apa-aglu").latex())
        \\operatorname{AGLU}(z, \\kappa, \\lambda) = z \\eta(z, \\kappa, \\lambda)
        """
        left = latex(self.lhs)
        rights = [latex(side, short=not self.definition) for side in (*self.steps, self.rhs)]
        below = []
        if self.tall:
            rights[-1], *below = _terms(self.rhs, short=not self.definition)
        if self.condition is not None:
            condition = latex(self.condition)
            if self.tall:
                below.append(rf"\text{{for }} {condition}")
            else:
                rights[-1] += rf" \qquad \left({condition}\right)"
        relations = ["="] * len(self.steps) + [RELATIONS[self.relation]]
        line = f"{left} {relations[0]} {rights[0]}"
        if len(rights) == 1 and not below and len(line) <= _LONGEST_LINE and not self.broken:
            return line
        if len(rights) == 1 and self.tall and _seen(left) <= _SHORT_SIDE:
            lines = [f"{left} & {relations[0]} {rights[0]}"]
        elif len(rights) == 1:
            indent = "" if self.tall else r"\quad "
            lines = [f"& {left}", f"& {indent}{relations[0]} {rights[0]}"]
        else:
            lines = [f"{left} & {relations[0]} {rights[0]}"]
            lines += [f"& {sign} {right}" for sign, right in zip(relations[1:], rights[1:], strict=True)]
        lines += [f"& {each}" for each in below]
        separator = " \\\\\n"
        return f"\\begin{{aligned}}\n{separator.join(lines)}\n\\end{{aligned}}"

    def markdown(self) -> str:
        """Return the display formula as a labelled dollarmath block.

        Returns
        -------
        str
            What stands in a notebook's Markdown cell.

        Examples
        --------
        >>> print(get("apa-aglu").markdown())
        $$
        \\operatorname{AGLU}(z, \\kappa, \\lambda) = z \\eta(z, \\kappa, \\lambda)
        $$ (eq-apa-aglu)
        """
        return f"$$\n{self.latex()}\n$$ ({self.label})"


class _Printer(LatexPrinter):  # type: ignore[misc]
    """SymPy's LaTeX printer with the book's notation and order of terms and factors."""

    def __init__(self, short: bool) -> None:
        # "none" because _print_Add's and _print_Mul's orders are made here.
        super().__init__({"ln_notation": True, "order": "none"})
        self._short = short

    def _print_AppliedUndef(self, expression: Any, exp: str | None = None) -> str:
        notation = _notations.get(expression.func.__name__)
        if notation is None:
            printed: str = super()._print_Function(expression, exp=exp)
            return printed
        name = notation.latex if exp is None else f"{notation.latex}^{{{exp}}}"
        usual = expression.args == notation.arguments
        if usual and (notation.abbreviation or (self._short and len(expression.args) > 1)):
            return name
        return f"{name}({', '.join(self._print(argument) for argument in expression.args)})"

    def _as_ordered_terms(self, expr: Any, order: str | None = None) -> list[Any]:
        """Positive terms before negative ones, and short ones first: 1 + t, q² − 2D, λ + exp(κz)."""

        def place(term: Any) -> tuple[bool, int, float]:
            # An element counts as one letter, whatever its indices: b_{i,j} + z_{j}.
            printed = "x" if isinstance(term, sympy.Indexed) else self._print(term)
            letters = re.sub(r"\\[A-Za-z]+", "x", printed)
            return term.could_extract_minus_sign(), len(letters), _place_in_product(term)

        terms: list[Any] = sorted(super()._as_ordered_terms(expr, order="lex"), key=place)
        shares = {factor: term for term in terms for factor in term.as_ordered_factors() if factor.is_Symbol}
        for term in terms:
            if any(1 - factor in shares for factor in term.as_ordered_factors() if factor.is_Add):
                return [term, *(each for each in terms if each is not term)]  # a mean that moves: (1 − m) μ + m x
        return terms

    def _print_Abs(self, expr: Any, exp: str | None = None) -> str:
        """SymPy gives a difference any sign. Here the Greek letter, what is compared with, stands last: |x − μ|."""
        inside = expr.args[0]
        first, *others = self._as_ordered_terms(inside)
        turned = self._as_ordered_terms(-inside)
        greek = [len(_GREEK.findall(self._print(each))) for each in (first, turned[0])]
        short = not any(each.has(sympy.Pow) for each in inside.args)
        if short and len(others) == 1 and others[0].could_extract_minus_sign() and greek[1] < greek[0]:
            inside = -inside
        power = "" if exp is None else f"^{{{exp}}}"
        return rf"\left|{{{self._print(inside)}}}\right|{power}"

    def _print_Mul(self, expr: Any) -> str:
        """Numbers, symbols, sums in brackets, functions: κ z (q − s) η q."""
        printed: str
        if not expr.is_Mul:  # SymPy prints 1/x as a power and calls this method with it
            printed = super()._print_Mul(expr)
            return printed
        factors = [-factor if _all_negative(factor) else factor for factor in expr.args]
        expr = sympy.Mul(*factors) * (-1) ** sum(map(_all_negative, expr.args))
        if expr.could_extract_minus_sign():
            rest = self._print(-expr)
            return rf"- \left({rest}\right)" if (-expr).is_Add else f"- {rest}"
        if {sympy.sqrt(2), 1 / sympy.sqrt(sympy.pi)} <= set(expr.args):
            rest = expr * sympy.sqrt(sympy.pi) / sympy.sqrt(2)
            root = r"\sqrt{\frac{2}{\pi}}"
            return f"{self._print(rest)} {root}" if rest.is_Symbol else f"{root} {self._print(rest)}"
        roots = [factor for factor in expr.args if factor.is_Pow and factor.exp == -sympy.Rational(1, 2)]
        if len(roots) > 1:
            above = self._print(sympy.Mul(*(factor for factor in expr.args if factor not in roots)))
            bases = sorted((root.base for root in roots), key=lambda base: base.is_Add)
            below = " ".join(
                rf"\left({self._print(each)}\right)" if each.is_Add else self._print(each) for each in bases
            )
            return rf"\frac{{{above}}}{{\sqrt{{{below}}}}}"
        sums = [factor for factor in expr.args if isinstance(factor, sympy.Sum)]
        if len(sums) == 1:
            others = sympy.Mul(*(factor for factor in expr.args if factor is not sums[0]))
            return f"{self._print(others)} {self._print(sums[0])}"
        ordered = sorted(expr.as_ordered_factors(), key=_place_in_product)
        product = sympy.Mul(*ordered, evaluate=False)
        printed = super()._print_Mul(product)
        return printed

    def _print_ExpBase(self, expr: Any, exp: str | None = None) -> str:
        """Write e with an exponent where that is small, exp(…) otherwise."""
        exponent = self._print(expr.args[0])
        if exp is None and "frac" not in exponent and "e^" not in exponent and "(" not in exponent:
            return f"e^{{{exponent}}}"
        name = r"\exp" if exp is None else rf"\exp^{{{exp}}}"
        return rf"{name}\left({exponent}\right)"

    def _print_log(self, expr: Any, exp: str | None = None) -> str:
        name = r"\ln" if exp is None else rf"\ln^{{{exp}}}"
        argument = self._print(expr.args[0])
        bare = expr.args[0].is_Symbol or expr.args[0].is_Integer or isinstance(expr.args[0], sympy.Indexed)
        return f"{name} {argument}" if bare else rf"{name}\left({argument}\right)"

    def _print_Indexed(self, expr: Any) -> str:
        return f"{self._print(expr.base.label)}_{{{','.join(self._print(index) for index in expr.indices)}}}"

    def _print_Sum(self, expr: Any) -> str:
        """Print a sign per index, the outer one first."""
        signs = " ".join(
            rf"\sum_{{{self._print(index)}={self._print(low)}}}^{{{self._print(high)}}}"
            for index, low, high in reversed(expr.limits)
        )
        summand = self._print(expr.function)
        return rf"{signs} \left({summand}\right)" if expr.function.is_Add else f"{signs} {summand}"

    def _print_Derivative(self, derivative: Any) -> str:
        orders = [(self._print(symbol), int(count)) for symbol, count in derivative.variable_count]
        total = sum(count for _, count in orders)
        power = f"^{{{total}}}" if total > 1 else ""
        below = r" \, ".join(
            rf"\partial {symbol}" + (f"^{{{count}}}" if count > 1 else "") for symbol, count in reversed(orders)
        )
        above = self._print(derivative.expr)
        if derivative.expr.is_Function:
            return rf"\frac{{\partial{power} {above}}}{{{below}}}"
        return rf"\frac{{\partial{power}}}{{{below}}} \left({above}\right)"

    def _print_LambertW(self, expression: Any, exp: str | None = None) -> str:
        name = "W" if exp is None else f"W^{{{exp}}}"
        return rf"{name}\left({self._print(expression.args[0])}\right)"


def _seen(printed: str) -> int:
    """About how many signs a reader sees of LaTeX."""
    without = re.sub(r"\\(?:frac|left|right|operatorname)\b|[{}_^\s]", "", printed)
    return len(re.sub(r"\\[A-Za-z]+", "x", without))


def _all_negative(factor: Any) -> bool:
    return factor.is_Add and all(term.could_extract_minus_sign() for term in factor.args)


def _place_in_product(factor: Any) -> float:
    base = factor.base if factor.is_Pow else factor
    if base.is_Number:
        return 0
    if isinstance(base, sympy.Indexed):
        return 1.5
    if base.is_Symbol:
        return 1
    if base.is_Add and all(term.is_Number or (-term).is_Symbol for term in base.args):
        return 1.2  # a share, and then what it is a share of: (1 − m) μ
    if base.is_Add:
        return 2  # before every function: η (1 + t) would read as a value of η
    if isinstance(base, sympy.exp):
        return 3
    if isinstance(base, sympy.core.function.AppliedUndef):
        notation = _notations.get(base.func.__name__)
        return 5 if notation is not None and notation.abbreviation else 4
    return 6


def _terms(expression: Any, *, short: bool) -> list[str]:
    """The terms of a sum as the book prints them, from the second on with their signs."""
    if not expression.is_Add:
        return [latex(expression, short=short)]
    first, *others = _Printer(short)._as_ordered_terms(expression)
    signed = [("-", -term) if term.could_extract_minus_sign() else ("+", term) for term in others]
    return [latex(first, short=short), *(f"{sign} {latex(term, short=short)}" for sign, term in signed)]


def latex(expression: Any, *, short: bool = False) -> str:
    """Print an expression in the notation of the book.

    Parameters
    ----------
    expression : sympy.Expr
        What to print.
    short : bool
        Whether a function of its usual arguments stands by its name alone.

    Returns
    -------
    str
        LaTeX.

    Examples
    --------
    >>> latex(lam * sympy.exp(-kappa * z))
    '\\\\lambda e^{- \\\\kappa z}'
    """
    printed: str = _Printer(short).doprint(expression)
    return printed


def function(name: str, *arguments: Any, printed: str | None = None, abbreviation: bool = False) -> Any:
    """Make a named function whose definition can be registered.

    Parameters
    ----------
    name : str
        Its name in SymPy.
    *arguments : sympy.Symbol
        Its usual arguments, in order.
    printed : str, optional
        Its name in LaTeX; by default the name.
    abbreviation : bool
        Whether it is always printed without its usual arguments.

    Returns
    -------
    sympy.Function
        An undefined function.

    Raises
    ------
    ValueError
        If the name already stands for a function with another notation.

    Examples
    --------
    >>> t = sympy.Symbol("t")
    >>> function("wave", t)(t)
    wave(t)
    """
    notation = _Notation(name if printed is None else printed, arguments, abbreviation)
    if _notations.setdefault(name, notation) != notation:
        raise ValueError(f"name: {name!r} is already a function with another notation")
    return sympy.Function(name)


def register(
    name: str,
    lhs: Any,
    rhs: Any,
    *,
    source: str,
    steps: Sequence[Any] = (),
    relation: str = "=",
    condition: Any = None,
    published: Any = None,
    note: str = "",
    definition: bool = False,
    tall: bool = False,
    broken: bool = False,
) -> Formula:
    """Add a formula to the registry.

    Parameters
    ----------
    name : str
        A name that no other formula has, beginning with the mechanism's: "apa-…".
    lhs, rhs, source, steps, relation, condition, published, note, definition, tall, broken
        See `Formula`.

    Returns
    -------
    Formula
        The formula, as it is registered.

    Raises
    ------
    ValueError
        If the name is taken, the relation is unknown, or a definition does not define a function of distinct
        symbols.
    """
    if name in _registry:
        raise ValueError(f"name: {name!r} is already registered, by {_registry[name].source}")
    if relation not in RELATIONS:
        raise ValueError(f"relation: {relation!r} is unknown; allowed are {', '.join(RELATIONS)}")
    if definition:
        _define(name, lhs, rhs)
    formula = Formula(
        name, lhs, rhs, source, tuple(steps), relation, condition, published, note, definition, tall, broken
    )
    _registry[name] = formula
    if published is not None:
        register(
            f"{name}-published",
            lhs,
            published,
            source=source,
            relation="?",
            condition=condition,
            note=f"As printed in the paper, and false; see {formula.label}.",
        )
    return formula


def _define(name: str, lhs: Any, rhs: Any) -> None:
    symbols = getattr(lhs, "args", ())
    if not symbols or not all(symbol.is_Symbol for symbol in symbols) or len(set(symbols)) < len(symbols):
        raise ValueError(f"lhs: {lhs} in {name!r} is not a function of distinct symbols, so it cannot be defined")
    defined = lhs.func.__name__
    if defined in _definitions:
        raise ValueError(f"lhs: the function {defined!r} in {name!r} already has a definition")
    _definitions[defined] = (symbols, rhs)


def expand(expression: Any) -> Any:
    """Replace every function that has a registered definition by that definition, until none is left.

    Parameters
    ----------
    expression : sympy.Expr
        For example one side of a formula.

    Returns
    -------
    sympy.Expr
        An expression in elementary functions. Derivatives, limits and sums in it stay as they are: call
        ``doit()``.

    Examples
    --------
    >>> expand(get("apa-aglu").rhs)
    z/(lambda*exp(-kappa*z) + 1)**(1/lambda)
    """
    _load()
    while True:
        defined = [call for call in expression.atoms(sympy.core.function.AppliedUndef) if _is_defined(call)]
        if not defined:
            return expression
        for call in defined:
            symbols, rhs = _definitions[call.func.__name__]
            body = rhs.subs(dict(zip(symbols, call.args, strict=True)), simultaneous=True)
            expression = expression.xreplace({call: body})


def _is_defined(call: Any) -> bool:
    return call.func.__name__ in _definitions


sigma = function("sigma", sympy.Symbol("x", real=True), printed=r"\sigma")
"""The logistic function, of which several mechanisms speak; the first one registers its formula."""


def get(name: str) -> Formula:
    """Return the formula of a name.

    Parameters
    ----------
    name : str
        For example "apa-aglu".

    Returns
    -------
    Formula
        The formula.

    Raises
    ------
    KeyError
        If no formula has the name. The message says which names are near.

    Examples
    --------
    >>> get("apa-aglu").source
    'Alexandridis et al. 2025, Eq. 6'
    """
    _load()
    if name not in _registry:
        near = difflib.get_close_matches(name, _registry, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "`python -m companion.study.symbolic list` lists all"
        raise KeyError(f"name: no formula is called {name!r}; {hint}")
    return _registry[name]


def formulas(prefix: str = "") -> list[Formula]:
    """Return the registered formulas whose name begins with a prefix.

    Parameters
    ----------
    prefix : str
        For example "apa-d-".

    Returns
    -------
    list of Formula
        In the order in which they were registered.
    """
    _load()
    return [formula for name, formula in _registry.items() if name.startswith(prefix)]


def _load() -> None:
    rooms.studies("formulas")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one formula as LaTeX, or list all.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line; by default that of the process.

    Returns
    -------
    int
        The exit status.
    """
    parser = argparse.ArgumentParser("python -m companion.study.symbolic", description="The formulas of the book.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name and source of every formula")
    printing = commands.add_parser("latex", help="a formula as it stands on the page")
    printing.add_argument("name")
    chosen = parser.parse_args(arguments)
    if chosen.command == "list":
        for formula in formulas():
            print(f"{formula.name:32} {formula.source}")
        return 0
    try:
        print(get(chosen.name).latex())
    except KeyError as error:
        parser.error(str(error.args[0]))
    return 0


if __name__ == "__main__":
    # Formulas register in the imported module, which is another object than the one that runs as __main__.
    raise SystemExit(importlib.import_module("companion.study.symbolic").main())
