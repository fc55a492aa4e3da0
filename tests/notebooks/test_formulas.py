"""Pages show the registry's formulas, and can be written from it."""

import re

from book._tools import formulas
from book._tools.places import BOOK
from companion.study import symbolic
from tests.cases import together


def _block(name: str) -> str:
    return f"$$\n{symbolic.get(name).latex()}\n$$ (eq-{name})"


def test_the_page_that_the_registry_writes_passes():
    page = "\n\nText.\n\n".join(["Text.", *(_block(formula.name) for formula in symbolic.formulas()), "More text."])
    assert len(list(formulas.blocks(page))) == len(symbolic.formulas())
    assert formulas.faults(page) == []


def test_a_changed_formula_is_found_and_rewritten():
    page = f"A.\n\n{_block('apa-aglu')}\n\nB.\n\n{_block('apa-eta')}"
    wrong = page.replace("z", "x")
    assert len(formulas.faults(wrong)) == 2
    assert formulas.rewritten(wrong) == page


def test_rewriting_leaves_other_formulas_and_text_alone():
    page = "Costs $$5.\n\n$$\nx\n$$ (eq-elsewhere)\n\n$$\ny\n$$"
    assert formulas.rewritten(page) == page


def test_code_is_not_taken_for_a_formula():
    assert formulas.faults("```sh\necho $$\n```\n\nand `$$`") == []


def _without_number(name: str) -> str:
    return f"(eq-{name})=\n$$\n{symbolic.get(name).latex()}\n$$"


def test_a_formula_without_a_number_is_compared_and_rewritten_too():
    page = f"A.\n\n{_without_number('apa-aglu')}\n\nB.\n\n{_block('apa-eta')}"
    assert [(block.label, block.numbered) for block in formulas.blocks(page)] == [
        ("eq-apa-aglu", False),
        ("eq-apa-eta", True),
    ]
    assert formulas.faults(page) == []
    wrong = page.replace("z", "x")
    assert len(formulas.faults(wrong)) == 2
    assert formulas.rewritten(wrong) == page


def test_a_formula_has_a_number_or_none():
    (fault,) = formulas.faults(f"(eq-apa-eta)=\n{_block('apa-eta')}")
    assert fault == "the formula 'eq-apa-eta' has a number and a name to link to: one of the two"


def test_formulas_inside_a_directive_are_found():
    page = ":::{note}\n$$\nx\n$$ (eq-apa-aglu)\n:::"
    assert any("differ" in fault for fault in formulas.faults(page))


NOTATION = {
    "eta": "apa-eta",
    "sigma": "apa-logistic",
    "t": "apa-t",
    "s": "apa-s",
    "L": "apa-exponent",
    "q": "apa-rate",
    "D": "apa-lambda-factor",
    "h": "apa-h",
    "w": "apa-w",
    "H": "apa-binary-entropy",
}


@together("name", NOTATION.values())
def test_the_notation_page_defines_a_symbol_as_the_registry_does(name):
    formula = symbolic.get(name)
    row = re.escape(f"| ${symbolic.latex(formula.lhs, short=True)}$ |") + ".*" + re.escape(
        f"${symbolic.latex(formula.rhs, short=True)}$"
    )  # fmt: skip
    text = (BOOK / "appendix" / "notation.md").read_text(encoding="utf-8")
    assert re.search(row, text)
