"""Display formulas of the book: find them, compare them with the registry, write them from it.

A formula that its page cites has a number: its label stands behind it, ``$$ (eq-apa-aglu)``. One that its page does not
cite has only a name to link to: the same label on a line of its own before it, ``(eq-apa-aglu)=``.

``python -m book._tools.formulas`` rewrites every labelled formula of every page from `companion.study.symbolic`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from book._tools.execute import save
from book._tools.places import BOOK, ROOT, notebooks

UNTESTED = "untested"
"""The tag of a Markdown cell whose formulas no registry knows. Its text has to say so to the reader."""

PREFIX = "eq-"

_BLOCK = re.compile(
    r"^(?:\((?P<target>eq-[^)\n]+)\)=\n)?\$\$\n(?P<latex>.*?)\n\$\$(?: \((?P<label>[^)\n]+)\))?$",
    re.DOTALL | re.MULTILINE,
)
_FENCED_CODE = re.compile(r"^(?P<fence>`{3,})(?!\s*\{).*?^(?P=fence)`*\s*$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"(?<!`)(`{1,2})(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)", re.DOTALL)
_OTHER_WAYS = re.compile(
    r"\$\$|\\\[|\\begin\{(?:equation|align|gather|eqnarray|multline)|^[`:~]{3,}\{math\}", re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A display formula on a page: its label, if it has one, its LaTeX, and whether it has a number."""

    label: str | None
    latex: str
    numbered: bool


def blocks(markdown: str) -> Iterator[Block]:
    """The display formulas in a piece of Markdown, in order."""
    for match in _BLOCK.finditer(_without_code(markdown)):
        yield Block(match["label"] or match["target"], match["latex"], numbered=match["label"] is not None)


def faults(markdown: str) -> list[str]:
    """What is wrong with the display formulas in a piece of Markdown.

    Returns
    -------
    list of str
        One sentence a fault; empty if every display formula is labelled and equals its registered one.
    """
    found = []
    for block in blocks(markdown):
        if block.label is None:
            found.append(f"this display formula has no label: {block.latex!r}")
            continue
        registered = _registered(block.label)
        if registered is None:
            found.append(f"the registry knows no formula for the label {block.label!r}")
        elif registered != block.latex:
            found.append(f"the page and the registry differ at {block.label!r}: {block.latex!r}, {registered!r}")
    found += [
        f"the formula {match['label']!r} has a number and a name to link to: one of the two"
        for match in _BLOCK.finditer(_without_code(markdown))
        if match["label"] and match["target"]
    ]
    rest = prose(markdown)
    if other := _OTHER_WAYS.search(rest):
        found.append(
            f"a display formula is written in another form than $$, LaTeX, $$ (label) on lines of their own: "
            f"{rest[other.start() : other.start() + 60]!r}"
        )
    return found


def rewritten(markdown: str) -> str:
    """The same Markdown, with the registry's LaTeX in every formula whose label the registry knows."""

    def block(match: re.Match[str]) -> str:
        label = match["label"] or match["target"]
        registered = _registered(label) if label else None
        if registered is None:
            return match[0]
        return markdown[match.start() : match.start("latex")] + registered + markdown[match.end("latex") : match.end()]

    return _BLOCK.sub(block, markdown)


def is_untested(cell: NotebookNode) -> bool:
    """Whether a Markdown cell is exempt from comparison with the registry."""
    return UNTESTED in cell.metadata.get("tags", [])


def pages() -> list[Path]:
    """The book's pages in plain Markdown."""
    return sorted(
        path
        for path in BOOK.rglob("*.md")
        if not any(part.startswith((".", "_")) for part in path.relative_to(BOOK).parts)
    )


def _registered(label: str) -> str | None:
    from companion.study import symbolic

    if not label.startswith(PREFIX):
        return None
    try:
        return symbolic.get(label.removeprefix(PREFIX)).latex()
    except KeyError:
        return None


def prose(markdown: str) -> str:
    """The Markdown without display formulas and code."""
    return _BLOCK.sub("", _without_code(markdown))


def _without_code(markdown: str) -> str:
    return _CODE.sub("", _FENCED_CODE.sub("", markdown))


def main() -> None:
    """Rewrite the formulas of all notebooks and Markdown pages."""
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (new := rewritten(text)) != text:
            path.write_text(new, encoding="utf-8")
            print(f"rewrote {path.relative_to(ROOT)}")
    for path in notebooks():
        notebook = nbformat.read(path, as_version=4)
        changed = False
        for cell in notebook.cells:
            if cell.cell_type == "markdown" and not is_untested(cell):
                new = rewritten(cell.source)
                changed |= new != cell.source
                cell.source = new
        if changed:
            save(notebook, path)
            print(f"rewrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
