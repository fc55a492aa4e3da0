"""The gate that committed notebooks and files pass: ``python -m book._tools.gate``.

nbval runs the cells and compares their outputs, but it passes a notebook whose outputs were cleared. The gate
looks at what is committed, without running it.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
from nbformat import NotebookNode

from book._tools import form, formulas, glued
from book._tools.execute import KERNEL, LANGUAGE
from book._tools.outputs import Tolerance
from book._tools.places import ROOT, notebooks, owner_and_name, project_files

# In the patterns one letter stands in brackets, so that this file does not hold what it forbids.
_ADDRESSES = {
    "a home folder": r"/(?:ho[m]e|Use[r]s)/\w|/roo[t]/\w|[A-Z]:\\+Use[r]s\\",
    "a folder of one machine": r"(?<![\w.}>~*/-])/(?:wor[k]|wor[k]space|mn[t]|content/driv[e])/\w",
    "a package index": r"pyp[i]\.org|pythonhoste[d]\.org|download\.pytorc[h]\.org|anacond[a]\.org",
    "a package index's setting": r"--(?:extra-|default-)?inde[x](?:-url)?\b|--find-link[s]|--trusted-hos[t]",
    "an address in a private network": r"\b192\.16[8]\.\d+\.\d+|\b\w+\.(?:interna[l]|la[n])(?::\d+|/)",
}
_PATH_IN_OUTPUT = r"(?<![\w.}>~*/<-])/(?:ho[m]e|roo[t]|us[r]|op[t]|tm[p]|va[r]|et[c]|sr[v]|wor[k]|mn[t])/[\w.-]+"

# The wheel's metadata and the citation must name the repository too; tests compare them.
_KNOW_THE_ADDRESS = ("_config.yml", "pyproject.toml", "CITATION.cff")

# These settings of pip and uv may name a host on the machine where the gate runs.
_INDEX_SETTINGS = re.compile(r"(?:PIP|UV)_.*(?:INDEX|LINKS|HOST).*")


def notebook_faults(notebook: NotebookNode) -> list[str]:
    """Everything that the gate has against a notebook.

    Parameters
    ----------
    notebook
        As nbformat reads it.

    Returns
    -------
    list of str
        One sentence a fault; empty if the notebook passes.
    """
    checks: tuple[Callable[[NotebookNode], list[str]], ...] = (
        _metadata,
        _execution,
        _outputs,
        _comparison,
        _formulas,
        glued.faults,
        _paths_in_outputs,
    )
    return [fault for check in checks for fault in check(notebook)]


def _metadata(notebook: NotebookNode) -> list[str]:
    if notebook.metadata != {"kernelspec": KERNEL, "language_info": LANGUAGE}:
        return [f"the metadata tells of one machine; run book._tools.execute: {notebook.metadata}"]
    return []


def _execution(notebook: NotebookNode) -> list[str]:
    faults = []
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        start = cell.source.strip().splitlines()[:1]
        if not start:
            faults.append(f"code cell {number} is empty")
        elif cell.execution_count is None:
            faults.append(f"code cell {number} was not executed: {start[0]!r}")
        elif cell.execution_count != number:
            faults.append(f"code cell {number} has the count {cell.execution_count}: run all cells once, in order")
        if "execution" in cell.metadata:
            faults.append(f"code cell {number} holds the times of its execution")
    return faults


def _outputs(notebook: NotebookNode) -> list[str]:
    faults = []
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        alt_of_cell = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        for output in cell.outputs:
            where = f"code cell {number}"
            if output.output_type == "error":
                faults.append(f"{where} failed: {output.ename}: {output.evalue}")
            elif output.output_type == "stream" and output.name == "stderr":
                faults.append(f"{where} wrote to stderr: {output.text[:80]!r}")
            data = output.get("data", {})
            pixels = sorted(set(data) & {"image/png", "image/jpeg", "image/gif"})
            if pixels and "image/svg+xml" not in data:
                faults.append(f"{where} has a figure that is {pixels[0]} and not SVG")
            if (pixels or "image/svg+xml" in data) and "text/html" not in data and not alt_of_cell.strip():
                faults.append(f"{where} has a figure without alt text; show it with companion.study.plotting.show")
            faults += [f"{where} {fault}" for fault in _figures_in_html(_text(data.get("text/html", "")))]
    return faults


def _comparison(notebook: NotebookNode) -> list[str]:
    """What would keep outputs from being compared: see `book._tools.outputs`."""
    faults, seen = [], set()
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        where, tags = f"code cell {number}", cell.metadata.get("tags", [])
        try:
            Tolerance.of(tags)
        except ValueError as error:
            faults.append(f"{where}: {error}")
        if any(tag.startswith(("nbval-", "raises-exception")) for tag in tags) or re.search(r"#\s*NBVAL", cell.source):
            faults.append(f"{where} tells nbval not to compare")
        for output in cell.outputs:
            for alt in re.findall(
                r'<svg\b[^>]*aria-label="([^"]*)"', _text(output.get("data", {}).get("text/html", ""))
            ):
                if alt in seen:
                    faults.append(f"{where} has a figure of the same description as another, so also of the same ids")
                seen.add(alt)
    return faults


def _figures_in_html(html: str) -> list[str]:
    faults = []
    for tag in re.findall(r"<svg\b[^>]*>", html):
        if not re.search(r'\saria-label="[^"]*\w', tag) or 'role="img"' not in tag:
            faults.append("has an SVG figure without role and aria-label")
    for tag in re.findall(r"<img\b[^>]*>", html):
        if not re.search(r'\salt="[^"]*\w', tag):
            faults.append("has an image without alt text")
        if re.search(r'src="(?:data:image/(?!svg)|[^"]*\.(?:png|jpe?g|gif))', tag):
            faults.append("has an image that is not SVG")
    return faults


def _formulas(notebook: NotebookNode) -> list[str]:
    faults = []
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            continue
        if not formulas.is_untested(cell):
            faults += formulas.faults(cell.source)
        elif not re.search(r"\b(?:untested|not tested)\b", cell.source, re.IGNORECASE):
            faults.append(f"a cell tagged {formulas.UNTESTED} does not tell the reader: {cell.source[:60]!r}")
    return faults


def _paths_in_outputs(notebook: NotebookNode) -> list[str]:
    faults = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            texts = [output.get("text", ""), *output.get("data", {}).values()]
            for match in re.finditer(_PATH_IN_OUTPUT, "\n".join(map(_text, texts))):
                faults.append(f"an output holds an absolute path: {match[0]!r}")
    return faults


def _text(value: object) -> str:
    return "".join(value) if isinstance(value, list) else str(value)


def text_faults(text: str, *, names: frozenset[str] = frozenset()) -> list[str]:
    """What a tracked file says about one machine or one network.

    Parameters
    ----------
    text
        The file.
    names
        Words that name this machine, its user or its package index.

    Returns
    -------
    list of str
        One sentence a fault.
    """
    faults = [f"names {what}: {match[0]!r}" for what, form in _ADDRESSES.items() for match in re.finditer(form, text)]
    faults += [
        f"names this machine, its user or its package index: {name!r}"
        for name in sorted(names)
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
    ]
    return faults


def machine_names() -> frozenset[str]:
    """The names that this machine, its user and its package index have.

    A name without digit, dot or hyphen is left out: a machine may be called neuron, and a user kernel.
    """
    names = {socket.gethostname(), os.environ.get("USER", ""), os.environ.get("LOGNAME", "")}
    for key, value in os.environ.items():
        if _INDEX_SETTINGS.fullmatch(key):
            names |= {urlsplit(part if "//" in part else f"//{part}").hostname or "" for part in value.split()}
    return frozenset(name for name in names if len(name) > 3 and re.search(r"[\d.-]", name))


def file_faults() -> list[str]:
    """What the tracked files say that they must not, each fault with its file and line."""
    names = machine_names()
    address = "/".join(owner_and_name())
    faults = []
    for path in project_files():
        name = path.relative_to(ROOT).as_posix()
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            faults += [f"{name}:{number} {fault}" for fault in text_faults(line, names=names)]
            if address in line and name not in _KNOW_THE_ADDRESS:
                faults.append(f"{name}:{number} names the repository's address, which belongs in _config.yml alone")
    return faults


def page_faults() -> list[str]:
    """What is wrong with the formulas of the Markdown pages."""
    return [
        f"{path.relative_to(ROOT).as_posix()}: {fault}"
        for path in formulas.pages()
        for fault in formulas.faults(path.read_text(encoding="utf-8"))
    ]


def book_faults() -> list[str]:
    """What is wrong with the committed notebooks, each fault with its file."""
    return [
        f"{path.relative_to(ROOT).as_posix()}: {fault}"
        for path in notebooks()
        for fault in notebook_faults(_read(path)) + form.faults(path, _read(path))
    ]


def _read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def main() -> None:
    """Print every fault; fail if there is one."""
    faults = book_faults() + page_faults() + file_faults()
    print("\n".join(faults) if faults else f"The gate passes {len(notebooks())} notebooks and all files.")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
