"""Numbers in prose that come from cells: what `companion.study.page.glue` put into outputs, and where pages use it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nbformat import NotebookNode

from companion.study.page import PREFIX

_ROLE = re.compile(r"\{(?P<role>glue(?::\w*)?)\}`(?P<name>[^`]*?)(?::(?P<form>[^:`]*))?`")


def made(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Name and committed text of everything that a notebook's cells glue, in order."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [
        (output.metadata["scrapbook"]["name"], "".join(output.data.get(f"{PREFIX}text/plain", "")))
        for output in outputs
        if "scrapbook" in output.get("metadata", {})
    ]


def inserted(text: str, form: str) -> str:
    """What a reader sees where the prose names a glued value."""
    from myst_nb.core.variables import format_plain_text  # type: ignore[import-untyped]

    return str(format_plain_text(text, form))


def _uses(notebook: NotebookNode) -> Iterator[re.Match[str]]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield from _ROLE.finditer(cell.source)


def faults(notebook: NotebookNode) -> list[str]:
    """What is wrong with a notebook's glued values, one sentence a fault."""
    names = [name for name, _ in made(notebook)]
    uses = list(_uses(notebook))
    used = {use["name"] for use in uses}
    found = [f"{use[0]}: allowed is {{glue:text}}" for use in uses if use["role"] != "glue:text"]
    found += [f"the text names {name!r}, which no cell of the page glues" for name in sorted(used - set(names))]
    found += [f"{name!r} is glued twice" for name in sorted({name for name in names if names.count(name) > 1})]
    return found + [f"{name!r} is glued and the text never names it" for name in sorted(set(names) - used)]
