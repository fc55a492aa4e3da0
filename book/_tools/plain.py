"""Copies of the notebooks in plain Markdown: ``python -m book._tools.plain``, or ``make notebooks``.

Jupyter does not know MyST. In a copy every directive and role has become plain Markdown, links lead to the
published pages, equations carry numbers instead of labels, glued values stand in the text, and what the page folds
is folded. A directive or role that this module does not know is an error, so that none reaches a reader raw. A copy
needs nothing beside it but the package; `book._tools.colab` adds the cell that installs it.

Jupyter shows no figure of a notebook that somebody else has run. These were run when the book was made, and what is
written here is signed with this user's key, as ``jupyter trust`` does.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary

from book._tools import formulas, glued, places
from book._tools.execute import save, text_of
from book._tools.places import BOOK, ROOT, notebooks, page_address, raw_address, release_tag, repository

ADMONITIONS = (
    "admonition",
    "attention",
    "caution",
    "danger",
    "error",
    "hint",
    "important",
    "margin",
    "note",
    "seealso",
    "sidebar",
    "tip",
    "topic",
    "warning",
)

_OPENING = re.compile(r"^(?P<fence>:{3,}|`{3,}|~{3,})\{(?P<name>[\w:-]+)\}[ \t]*(?P<argument>.*?)[ \t]*$")
_ROLE = re.compile(r"\{(?P<name>[a-z][\w:-]*)\}(?P<ticks>`+)(?P<text>[^`]+)(?P=ticks)")
_EQUATION = re.compile(r"^\$\$\n(?P<latex>.*?)\n\$\$ \((?P<label>[^)\n]+)\)$", re.DOTALL | re.MULTILINE)
_TITLED = re.compile(r"^(?P<title>.*?)\s*<(?P<target>[^>]+)>$", re.DOTALL)
_INLINE_CODE = re.compile(r"(?<![`}])(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)", re.DOTALL)

# By which of Jupyter Book's tags Jupyter hides what.
_FOLDS = {
    "source_hidden": {"hide-cell", "hide-input", "remove-input"},
    "outputs_hidden": {"hide-cell", "hide-output"},
}


def plain_copy(path: Path, ref: str) -> NotebookNode:
    """The copy of a notebook of the book for any Jupyter.

    Parameters
    ----------
    path
        The notebook, below ``book/``.
    ref
        The tag or branch in which the pictures and files lie that the text names.

    Raises
    ------
    ValueError
        If the notebook holds MyST that this module does not translate.
    """
    notebook = nbformat.read(path, as_version=4)
    page = _Page(path, notebook, ref)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = page.plain(cell.source)
        else:
            _fold(cell)
        for output in cell.get("outputs", []):
            for kind in {"text/html", "text/markdown"} & set(output.get("data", {})):
                output.data[kind] = page.addressed(output.data[kind])
    notebook.cells.insert(0, _greeting(path))
    nbformat.validate(notebook)
    return notebook


def _fold(cell: NotebookNode) -> None:
    """Fold away what the page folds. Jupyter shows the first line of a folded cell."""
    tags = set(cell.metadata.get("tags", []))
    shown = cell.metadata.pop("mystnb", {}).get("code_prompt_show", "Show the code")
    folded = {name: True for name, by in _FOLDS.items() if by & tags}
    if "source_hidden" in folded:
        cell.source = f"# {shown}\n{cell.source}"
    if folded:
        cell.metadata["jupyter"] = folded


def _greeting(path: Path) -> NotebookNode:
    text = (
        f"This is a copy of [a chapter of *Rethinking the Neuron*]({page_address(path)}). It is easier to read there, "
        f"and can be run here: [how to install what it needs]({page_address(BOOK / 'appendix' / 'running.md')}). Where "
        "figures are missing, run all cells: Jupyter hides those that somebody else has drawn."
    )
    return nbformat.v4.new_markdown_cell(text, id="greeting")


class _Page:
    """One notebook on its way to plain Markdown: it knows the equations' numbers and what is cited."""

    def __init__(self, path: Path, notebook: NotebookNode, ref: str) -> None:
        self.path, self.ref = path, ref
        text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        labels = [match["label"] for match in _EQUATION.finditer(text)]
        self.formulas = {block.label for block in formulas.blocks(text)}
        self.numbers = {label: number for number, label in enumerate(labels, start=1)}
        keys = [match["text"] for match in _ROLE.finditer(text) if match["name"].startswith("cite")]
        self.cited = sorted({key.strip() for group in keys for key in group.split(",")})
        self.glued = dict(glued.made(notebook))

    def plain(self, markdown: str) -> str:
        """Translate a cell: first directives, outermost first, then what stands within a line."""
        return self._directives(markdown.splitlines())

    def _directives(self, lines: Sequence[str]) -> str:
        done: list[str] = []
        prose: list[str] = []

        def finish_prose() -> None:
            if prose:
                done.append(self._inline("\n".join(prose)))
                prose.clear()

        position = 0
        while position < len(lines):
            line = lines[position]
            opening = _OPENING.match(line)
            code = re.match(r"^(`{3,}|~{3,})", line)
            if not opening and not code:
                prose.append(line)
                position += 1
                continue
            fence = opening["fence"] if opening else code[1]  # type: ignore[index]
            end = self._end(lines, position, fence)
            finish_prose()
            if opening:
                done.append(self._directive(opening["name"], opening["argument"], lines[position + 1 : end]))
            else:
                done.append("\n".join(lines[position : end + 1]))
            position = end + 1
        finish_prose()
        return "\n".join(done)

    def _end(self, lines: Sequence[str], start: int, fence: str) -> int:
        closing = re.compile(rf"^{fence[0]}{{{len(fence)},}}\s*$")
        for position in range(start + 1, len(lines)):
            if closing.match(lines[position]):
                return position
        raise ValueError(f"{self.path.name}: no end of the block that begins with {lines[start]!r}")

    def _directive(self, name: str, argument: str, lines: Sequence[str]) -> str:
        options, body = _options(lines)
        if name in ADMONITIONS:
            title = argument or name.capitalize()
            return _quoted(f"**{self._inline(title)}**\n\n{self._directives(body)}")
        if name == "dropdown":
            summary, inside = self._inline(argument) or "Show", self._directives(body)
            return f"<details>\n<summary>{summary}</summary>\n\n{inside}\n\n</details>\n"
        if name in ("figure", "image"):
            alt, address = (
                options.get("alt", ""),
                raw_address((self.path.parent / argument).resolve(), self.ref),
            )
            return f"![{alt}]({address})\n\n{self._directives(body)}".rstrip() + "\n"
        if name in ("code-block", "code", "literalinclude"):
            if name == "literalinclude":
                body = (self.path.parent / argument).read_text(encoding="utf-8").splitlines()
                argument = options.get("language", "")
            return "\n".join([f"```{argument}", *body, "```"])
        if name == "eval-rst":  # made from docstrings when the page is built
            return f"[On the page.]({page_address(self.path)})"
        if name == "table":
            return f"**{self._inline(argument)}**\n\n{self._directives(body)}"
        if name == "bibliography":
            return "\n\n".join(_reference(key) for key in self.cited)
        raise ValueError(f"{self.path.name}: a copy cannot show the directive {{{name}}}")

    def _inline(self, text: str) -> str:
        """Everything but directives. Code between backticks stays as it is."""
        kept: list[str] = []

        def keep(match: re.Match[str]) -> str:
            kept.append(match[0])
            return f"\0{len(kept) - 1}\0"

        text = re.sub(r"^\([\w:.-]+\)=\n?", "", text, flags=re.MULTILINE)
        text = re.sub(r"^%.*\n?|^\+\+\+.*\n?", "", text, flags=re.MULTILINE)
        text = text.replace("{{ repository }}", repository())
        text = _EQUATION.sub(lambda match: f"$$\n{match['latex']}\n\\tag{{{self.numbers[match['label']]}}}\n$$", text)
        text = _ROLE.sub(self._role, text)
        text = _INLINE_CODE.sub(keep, text)
        text = re.sub(r"(?<=\]\()#(eq-[^)\s]+)(?=\))", self._link_to_equation, text)
        text = re.sub(r"(?<=\]\()(?![a-z]+:)([^)\s]+)(?=\))", self._link, self.addressed(text))
        return re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], text)

    def addressed(self, html: str) -> str:
        """HTML in which links to other pages lead to the published ones."""
        return re.sub(r"(?<=<a href=['\"])(?![a-z]+:)([^'\"]+)(?=['\"])", self._link, html)

    def _link(self, match: re.Match[str]) -> str:
        target, *rest = re.split(r"(?=[?#])", match[1], maxsplit=1)
        file = (self.path.parent / target).resolve() if target else self._home_of_label("".join(rest)[1:])
        if file.suffix not in ("", ".md", ".ipynb", ".html"):
            return raw_address(file, self.ref)
        return page_address(file) + "".join(rest)

    def _home_of_label(self, label: str) -> Path:
        """The page of a label; what is no label anywhere is an id of this page."""
        marked = re.compile(rf"^\({re.escape(label)}\)=$", re.MULTILINE)
        return next((path for path, text in _texts().items() if marked.search(text)), self.path)

    def _link_to_equation(self, match: re.Match[str]) -> str:
        home = self.path if match[1] in self.formulas else _home_of_equation(match[1])
        return f"{page_address(home)}#equation-{match[1]}"

    def _role(self, match: re.Match[str]) -> str:
        name, text = match["name"], match["text"]
        titled = _TITLED.match(text)
        title, target = (titled["title"], titled["target"]) if titled else ("", text)
        translate: dict[str, Callable[[], str]] = {
            "eq": lambda: self._equation(text),
            "doc": lambda: self._document(target, title),
            "cite:t": lambda: _cited(text, "{authors} ({year})", "; "),
            "cite:p": lambda: f"({_cited(text, '{authors}, {year}', '; ')})",
            "cite": lambda: f"({_cited(text, '{authors}, {year}', '; ')})",
            "math": lambda: f"${text}$",
            "glue:text": lambda: self._glued(text),
            "sup": lambda: f"<sup>{text}</sup>",
            "sub": lambda: f"<sub>{text}</sub>",
        }
        if name in translate:
            return translate[name]()
        if name in ("code", "func", "class", "meth", "mod", "attr", "data") or name.startswith("py:"):
            return f"`{title or target.lstrip('~')}`"
        raise ValueError(f"{self.path.name}: a copy cannot show the role {{{name}}}`{text}`")

    def _equation(self, label: str) -> str:
        if label in self.numbers:
            return f"({self.numbers[label]})"
        home = _home_of_equation(label)
        return f"[({label.removeprefix('eq-')})]({page_address(home)}#equation-{label})"

    def _glued(self, text: str) -> str:
        name, _, form = text.partition(":")
        if name not in self.glued:
            raise ValueError(f"{self.path.name}: no cell glues {name!r}")
        return glued.inserted(self.glued[name], form or "s")

    def _document(self, target: str, title: str) -> str:
        base = BOOK if target.startswith("/") else self.path.parent
        for suffix in (".ipynb", ".md"):
            file = (base / (target.lstrip("/") + suffix)).resolve()
            if file.exists():
                return f"[{title or _title(file)}]({page_address(file)})"
        raise ValueError(f"{self.path.name}: there is no page {target!r}")


def _options(lines: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The ``:key: value`` lines that open a directive, and its body."""
    options, position = {}, 0
    while position < len(lines) and (match := re.match(r"^:([\w-]+):\s*(.*)$", lines[position])):
        options[match[1]] = match[2]
        position += 1
    body = list(lines[position:])
    while body and not body[0].strip():
        body.pop(0)
    return options, body


def _quoted(text: str) -> str:
    """A block quote, with each formula on one line: Jupyter would typeset the marks of the quote inside it."""
    text = re.sub(
        r"^\$\$\n.*?\n\$\$$", lambda formula: " ".join(formula[0].split("\n")), text, flags=re.DOTALL | re.MULTILINE
    )
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) + "\n"


@cache
def _title(file: Path) -> str:
    """The first heading of a page."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        text = "\n".join(cell.source for cell in nbformat.reads(text, as_version=4).cells)
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    if heading is None:
        raise ValueError(f"{file.name} has no heading to name it by")
    return heading[1].strip()


@cache
def _home_of_equation(label: str) -> Path:
    for path, text in _texts().items():
        if any(block.label == label for block in formulas.blocks(text)):
            return path
    raise ValueError(f"no page holds the equation {label!r}")


@cache
def _texts() -> dict[Path, str]:
    """The prose of all pages."""
    files = (path for path in BOOK.rglob("*.md") if not path.relative_to(BOOK).parts[0].startswith("_"))
    pages = {path: path.read_text(encoding="utf-8") for path in files}
    for path in places.notebooks():  # all of them, however few are copied
        cells = nbformat.read(path, as_version=4).cells
        pages[path] = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return pages


@cache
def _bibliography() -> dict[str, tuple[str, str, str]]:
    """Key → authors as cited in the text, year, the entry as a line of Markdown."""
    from pybtex.database import parse_file  # type: ignore[import-untyped]

    book = {}
    for key, entry in parse_file(str(BOOK / "references.bib")).entries.items():
        people = entry.persons.get("author", [])
        last = [" ".join(person.prelast_names + person.last_names) for person in people]
        cited = last[0] if len(last) == 1 else " and ".join(last) if len(last) == 2 else f"{last[0]} et al."
        fields = {name: re.sub(r"[{}]", "", value) for name, value in entry.fields.items()}
        where = fields.get("journal") or fields.get("booktitle") or fields.get("publisher", "")
        link = fields.get("doi") and f"https://doi.org/{fields['doi']}"
        link = link or (fields.get("eprint") and f"https://arxiv.org/abs/{fields['eprint']}") or fields.get("url", "")
        line = f"{', '.join(last)}. *{fields['title']}*. {where}, {fields['year']}. {link}".strip()
        book[key] = (re.sub(r"[{}\\]", "", cited), fields["year"], re.sub(r"\.\s+,", ".", line))
    return book


def _entry(key: str) -> tuple[str, str, str]:
    if key not in _bibliography():
        raise ValueError(f"references.bib has no entry {key!r}")
    return _bibliography()[key]


def _cited(keys: str, form: str, between: str) -> str:
    """Each key, linked to the work itself where it can be: a copy has no list of references."""
    cited = []
    for key in keys.split(","):
        authors, year, line = _entry(key.strip())
        text = form.format(authors=authors, year=year)
        link = re.search(r"https?://\S+$", line)
        cited.append(f"[{text}]({link[0]})" if link else text)
    return between.join(cited)


def _reference(key: str) -> str:
    return _entry(key)[2]


def main() -> None:
    """Write the copies of all notebooks. What lies there already, and is different, gets another name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "notebooks", help="folder that takes the copies (notebooks)")
    folder = parser.parse_args().out.resolve()
    for path in notebooks():
        target, copy = folder / path.relative_to(BOOK), plain_copy(path, release_tag())
        if target.exists() and target.read_text(encoding="utf-8") != text_of(copy):
            _keep(target)
        save(copy, target)
        NotebookNotary().sign(copy)
        print(f"copied {path.relative_to(ROOT)}")


def _keep(file: Path) -> None:
    """Rename a file after the time of its last change: it may hold a reader's answers."""
    changed = datetime.fromtimestamp(file.stat().st_mtime)
    kept = file.with_stem(f"{file.stem} of {changed:%Y-%m-%d %H.%M.%S}")
    file.rename(kept)
    print(f"kept {kept.name}: it differs from the copy that comes in its place")


if __name__ == "__main__":
    main()
