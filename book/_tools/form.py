"""The form of pages: how long they are, the box at the top of a mechanism's first one, exercises.

A page has this form if it is one of several on its mechanism by the table of contents, has the box, or is a chapter of
the ground.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml
from nbformat import NotebookNode

from book._tools import formulas
from book._tools.places import BOOK

MOST_WORDS, MOST_NUMBERS, MOST_CODE_CELLS = 2500, 12, 23
"""Of one page: twenty minutes of reading."""

MOST_WORDS_FIRST = 1800
"""Of a mechanism's first page, the folds included."""

BOX = "five-lines"
"""The class of the box."""

LINES = ("What changes in the neuron", "What it costs", "What we found", "Use it when", "Do not use it when")

_BOX = re.compile(rf"^(?P<fence>:{{3,}})\{{admonition\}}[^\n]*\n:class: {BOX}\n(?P<lines>.*?)^(?P=fence)$", re.M | re.S)
_LINE = re.compile(r"^- \*\*(.+?)\.?\*\*", re.MULTILINE)
_EXERCISE = re.compile(r"^:{3,}\{admonition\} Exercise (?P<number>\d+) · [^★\n]+ (?P<level>★{1,3})$", re.MULTILINE)
_ANY_EXERCISE = re.compile(r"^:class: exercise$", re.MULTILINE)
_TYPED_NUMBER = re.compile(r"(?<![\w-])\d\S*")
_NOT_TEXT = re.compile(r"\$[^$]+\$|\{[\w:]+\}`[^`]*`|`[^`]*`|\]\([^)]*\)")


def faults(path: Path, notebook: NotebookNode) -> list[str]:
    """What a page lacks of the form, one sentence a fault.

    Parameters
    ----------
    path
        Of the notebook, in the book.
    notebook
        As nbformat reads it.
    """
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    page = path.relative_to(BOOK).with_suffix("").as_posix()
    box = _BOX.search(text)
    is_further = path.parent == BOOK / "ground" or any(page in pages for pages in further_pages().values())
    is_first = not is_further and (page in further_pages() or box is not None)
    if not (is_first or is_further):
        return []
    found = (
        _lengths(text, notebook, MOST_WORDS_FIRST if is_first else MOST_WORDS)
        + _citations(text)
        + _exercises(path.stem, text, notebook)
    )
    if is_first:
        found += _box(box["lines"]) if box else ["the first page of a mechanism has no box of five lines"]
    return found


@cache
def further_pages() -> dict[str, list[str]]:
    """The pages below a mechanism's first one, in the order of the table of contents."""
    contents = yaml.safe_load((BOOK.parent / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [chapter for part in contents["parts"] for chapter in part["chapters"] if "sections" in chapter]
    return {chapter["file"]: [section["file"] for section in chapter["sections"]] for chapter in chapters}


def words(markdown: str) -> int:
    """How many words a reader reads: without code, display formulas, options and marks."""
    text = re.sub(r"^:[\w-]+:.*$|^\([\w:.-]+\)=$", "", formulas.prose(markdown), flags=re.MULTILINE)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def _lengths(text: str, notebook: NotebookNode, most_words: int) -> list[str]:
    code = sum(cell.cell_type == "code" for cell in notebook.cells)
    numbers = sum(block.numbered for block in formulas.blocks(text))
    return [
        f"the page has {count} {what}, allowed are {most}"
        for what, count, most in (
            ("words", words(text), most_words),
            ("numbered formulas", numbers, MOST_NUMBERS),
            ("code cells", code, MOST_CODE_CELLS),
        )
        if count > most
    ]


def _citations(text: str) -> list[str]:
    cited = set(re.findall(r"\{eq\}`([^`]+)`", text))
    return [
        f"the formula {block.label!r} has a number and is never cited: write ({block.label})= before it"
        for block in formulas.blocks(text)
        if block.numbered and block.label not in cited
    ]


def _box(lines: str) -> list[str]:
    found = []
    if tuple(_LINE.findall(lines)) != LINES:
        found.append(f"the box has the lines {_LINE.findall(lines)}, wanted are {list(LINES)}")
    if typed := _TYPED_NUMBER.search(_NOT_TEXT.sub("", lines)):
        found.append(f"the box holds a number that no cell glues: {typed[0]!r}")
    return found


def _exercises(page: str, text: str, notebook: NotebookNode) -> list[str]:
    exercises = list(_EXERCISE.finditer(text))
    found = []
    if len(exercises) != len(_ANY_EXERCISE.findall(text)):
        found.append("an exercise's title is not of the form Exercise 1 · code ★")
    if len(exercises) < 3 or {exercise["level"] for exercise in exercises} != {"★", "★★", "★★★"}:
        found.append("the page has fewer than three exercises, or not all of the levels ★, ★★ and ★★★")
    for number in (exercise["number"] for exercise in exercises):
        call = re.compile(rf'\bcheck\("{page}-{number}"')
        cells = [cell for cell in notebook.cells if cell.cell_type == "code" and call.search(cell.source)]
        hidden = ["hide-cell" in cell.metadata.get("tags", []) for cell in cells]
        if hidden != [False, True]:
            found.append(f"exercise {number} wants a cell to start from and a hidden solution, each with a check")
        elif "Right." not in str(cells[1].outputs):
            found.append(f"the solution of exercise {number} is not right")
    return found
