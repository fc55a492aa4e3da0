"""Names of a page, and what each stands for: formulas written out for vectors and matrices of given sizes.

A page shows the names (a mean μ, an output f_i). A check wants numbers: sums of so many terms, names replaced by what
they stand for, derivatives taken. A mechanism keeps one `Vocabulary` beside its formulas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import sympy

from companion.study.symbolic import Formula, Partial, register

__all__ = ["Vocabulary"]


class _Context(NamedTuple):
    """What decides what a name stands for: the sizes, the condition, and the names that stay names."""

    sizes: frozenset[tuple[Any, int]]
    given: Any
    kept: frozenset[Any] = frozenset()


class Vocabulary:
    """Names and their meanings.

    Examples
    --------
    >>> n, j = sympy.Symbol("n", integer=True), sympy.Symbol("j", integer=True)
    >>> x, mean = sympy.IndexedBase("x"), sympy.Symbol("mu")
    >>> words = Vocabulary()
    >>> words.name(mean, sympy.Sum(x[j], (j, 1, n)) / n)
    >>> words.written_out(Partial(mean**2, x[1]), {n: 2})
    x[1]/2 + x[2]/2
    """

    def __init__(self) -> None:
        self._meanings: dict[Any, tuple[tuple[Any, ...], Any]] = {}
        # the same names are in every formula, and in most of them in many places
        self._known: dict[tuple[Any, _Context], Any] = {}

    def name(self, lhs: Any, rhs: Any) -> None:
        """Say what a name stands for: a symbol, or an element with its indices."""
        indexed = isinstance(lhs, sympy.Indexed)
        self._meanings[lhs.base if indexed else lhs] = (lhs.indices if indexed else (), rhs)
        self._known.clear()

    def define(self, name: str, lhs: Any, rhs: Any, **more: Any) -> Formula:
        """Register what a name stands for, see `companion.study.symbolic.register`."""
        self.name(lhs, rhs)
        return register(name, lhs, rhs, **more)

    def written_out(self, expression: Any, sizes: Mapping[Any, int], given: Any = None) -> Any:
        """Write an expression out.

        Parameters
        ----------
        expression : sympy.Expr
            For example one side of a formula, with numbers for its free indices.
        sizes : mapping
            A number for each size that it has.
        given : sympy.Eq, optional
            What a name stands for besides, for example the condition of a formula: b_{i,j} = b_j.

        Returns
        -------
        sympy.Expr
            Sums become terms, names what they stand for, and derivatives are taken. What has no meaning stays.
        """
        if not (isinstance(given, sympy.Eq) and isinstance(given.lhs, sympy.Indexed)):
            given = None
        return self._written(sympy.sympify(expression), _Context(frozenset(sizes.items()), given))

    def _written(self, expression: Any, context: _Context) -> Any:
        expression = expression.subs(dict(context.sizes)).doit()
        expression = expression.xreplace({each: self._derived(each, context) for each in expression.atoms(Partial)})
        atoms = expression.atoms(sympy.Indexed, sympy.Symbol)
        return expression.xreplace({atom: self._meant(atom, context) for atom in atoms})

    def _meant(self, atom: Any, context: _Context) -> Any:
        """An element or a name, written out: itself, where it stands for nothing else."""
        if (atom, context) not in self._known:
            self._known[atom, context] = self._meaning(atom, context)
        return self._known[atom, context]

    def _meaning(self, atom: Any, context: _Context) -> Any:
        head, at = (atom.base, atom.indices) if isinstance(atom, sympy.Indexed) else (atom, ())
        if head in context.kept:
            return atom
        if context.given is not None and head == context.given.lhs.base:
            indices, meaning = context.given.lhs.indices, context.given.rhs
        else:
            indices, meaning = self._meanings.get(head, (at, atom))
        if len(indices) != len(at):
            return atom
        meaning = meaning.subs(dict(zip(indices, at, strict=True)), simultaneous=True)
        return atom if meaning == atom else self._written(meaning, context)

    def _derived(self, partial: Partial, context: _Context) -> Any:
        if (partial, context) not in self._known:
            of, by = partial.args
            # A name that one differentiates by stays a name until that is done.
            head = by.base if isinstance(by, sympy.Indexed) else by
            kept = context._replace(kept=context.kept | {head})
            self._known[partial, context] = self._written(self._written(of, kept).diff(by), context)
        return self._known[partial, context]
