"""The pages of a mechanism have one form, and glued values are made once and used; each fault is found."""

import re

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from book._tools import form, glued
from book._tools.places import BOOK

FIRST = BOOK / "mechanisms" / "sample.ipynb"
BOX = """\
:::{admonition} Sample in five lines
:class: five-lines

- **What changes in the neuron.** Its threshold.
- **What it costs.** {glue:text}`cost` parameters, $2 d$ of them.
- **What we found.** Nothing on CIFAR-10.
- **Use it when** it pays.
- **Do not use it when** it does not.
:::
"""
FORMULAS = "See {eq}`eq-cited`.\n\n$$\nx\n$$ (eq-cited)\n\n(eq-not-cited)=\n$$\ny\n$$\n"


def _glued(**values):
    cell = new_code_cell("glue()")
    for name, value in values.items():
        data = {"application/papermill.record/text/plain": repr(value)}
        metadata = {"scrapbook": {"name": name, "mime_prefix": "application/papermill.record/"}}
        cell.outputs.append(new_output("display_data", data=data, metadata=metadata))
    return cell


def _exercise(number, level, said="Right."):
    text = f"::::{{admonition}} Exercise {number} · code {'★' * level}\n:class: exercise\n\nHow?\n::::"
    output = new_output("execute_result", data={"text/plain": said})
    check = f'check("sample-{number}", '
    return [
        new_markdown_cell(text),
        new_code_cell(f"{check}...)"),
        new_code_cell(f"{check}1)", metadata={"tags": ["hide-cell"]}, outputs=[output]),
    ]


def _page(box=BOX, text=FORMULAS, exercises=None, code=0):
    exercises = [cell for level in (1, 2, 3) for cell in _exercise(level, level)] if exercises is None else exercises
    cells = [new_markdown_cell(f"# Sample\n\n{box}"), new_markdown_cell(text), _glued(cost=3), *exercises]
    return new_notebook(cells=cells + [new_code_cell("1") for _ in range(code)])


def test_a_page_of_the_form_passes():
    assert form.faults(FIRST, _page()) == []
    assert glued.faults(_page()) == []


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        (_page(text=FORMULAS + "word " * 2000), "allowed are 1800"),
        (
            _page(text="".join(f"{{eq}}`eq-{n}`\n\n$$\nx\n$$ (eq-{n})\n\n" for n in range(13))),
            "the page has 13 numbered formulas, allowed are 12",
        ),
        (_page(code=17), "the page has 24 code cells, allowed are 23"),
        (
            _page(text=FORMULAS.replace("{eq}`eq-cited`", "it")),
            "the formula 'eq-cited' has a number and is never cited: write (eq-cited)= before it",
        ),
        (_page(box=BOX.replace("- **Use it when** it pays.\n", "")), "the box has the lines"),
        (_page(box=BOX.replace("{glue:text}`cost`", "769")), "the box holds a number that no cell glues: '769'"),
        (_page(exercises=_exercise(1, 1) + _exercise(2, 3)), "fewer than three exercises"),
        (_page(exercises=_exercise(1, 1) + _exercise(2, 2) + _exercise(3, 2)), "not all of the levels"),
        (
            _page(exercises=_exercise(1, 1) + _exercise(2, 2) + _exercise(3, 3)[:2]),
            "exercise 3 wants a cell to start from and a hidden solution, each with a check",
        ),
        (
            _page(exercises=_exercise(1, 1) + _exercise(2, 2) + _exercise(3, 3)[::2]),
            "exercise 3 wants a cell to start from",
        ),
        (
            _page(exercises=_exercise(1, 1) + _exercise(2, 2) + _exercise(3, 3, "The sign is wrong.")),
            "the solution of exercise 3 is not right",
        ),
        (
            _page(text=FORMULAS + "\n:::{admonition} Exercise 4\n:class: exercise\n\nWhy?\n:::"),
            "an exercise's title is not of the form",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_is_found(page, fault):
    (found,) = form.faults(FIRST, page)
    assert fault in found


def test_a_page_without_the_box_is_not_asked_for_it_where_it_is_the_only_one():
    assert form.faults(FIRST, _page(box="", exercises=[])) == []


def test_a_chapter_of_the_ground_has_no_box_and_the_same_length_and_exercises():
    chapter = BOOK / "ground" / "sample.ipynb"
    assert form.faults(chapter, _page(box="")) == []
    (found,) = form.faults(chapter, _page(box="", exercises=[]))
    assert "fewer than three exercises" in found
    (found,) = form.faults(chapter, _page(box="", text=FORMULAS + "word " * 3000))
    assert "allowed are 2500" in found


def test_the_first_of_several_pages_has_the_box(monkeypatch):
    monkeypatch.setattr(form, "further_pages", lambda: {"mechanisms/sample": ["mechanisms/sample-kernel"]})
    folder = FIRST.parent
    assert form.faults(folder / "sample.ipynb", _page(box="")) == [
        "the first page of a mechanism has no box of five lines"
    ]
    found = form.faults(folder / "sample-kernel.ipynb", _page(box="", exercises=[]))
    assert found == ["the page has fewer than three exercises, or not all of the levels ★, ★★ and ★★★"]


def test_pages_of_mechanisms_are_known_by_the_table_of_contents():
    known = form.further_pages()
    assert "mechanisms/dac-conversion" in known["mechanisms/dac"]
    files = {path.relative_to(BOOK).with_suffix("").as_posix() for path in FIRST.parent.glob("*.ipynb")}
    assert {*known}.union(*known.values()) == files


def test_words_are_what_is_read():
    text = (
        f"(here)=\n# One two\n\n:::{{note}}\n:class: tip\n\nThree – four.\n:::\n\n{FORMULAS}\n```python\nx = 1\n```\n"
    )
    assert form.words(text) == len(re.split(" ", "One two note Three four. See it."))


@pytest.mark.parametrize(
    ("prose", "faults"),
    [
        ("{glue:text}`cost`", []),
        ("{glue:text}`cost:.2f` and {glue:text}`cost`", []),
        ("Nothing.", ["'cost' is glued and the text never names it"]),
        ("{glue:text}`cost` {glue:text}`gain:.1f`", ["the text names 'gain', which no cell of the page glues"]),
        ("{glue:text}`cost` {glue}`cost`", ["{glue}`cost`: allowed is {glue:text}"]),
        ("{glue:text}`cost` {glue:text}`other::cost`", ["the text names 'other:', which no cell of the page glues"]),
    ],
)
def test_what_is_glued_and_what_is_named_are_the_same(prose, faults):
    assert glued.faults(new_notebook(cells=[new_markdown_cell(prose), _glued(cost=3)])) == faults


def test_a_name_is_glued_once():
    cells = [new_markdown_cell("{glue:text}`cost`"), _glued(cost=3), _glued(cost=4)]
    assert glued.faults(new_notebook(cells=cells)) == ["'cost' is glued twice"]
