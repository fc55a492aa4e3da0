"""The chapter on kernels opens its part of the book, and every kernel page leads back to it."""

import re

import nbformat
import yaml

from book._tools.places import BOOK, ROOT
from tests.cases import together

PAGES = sorted(path.stem for path in (BOOK / "mechanisms").glob("*-kernel.ipynb"))


@together("name", PAGES)
def test_a_kernel_page_sends_who_is_new_to_the_chapter_on_kernels(name):
    opening = nbformat.read(BOOK / "mechanisms" / f"{name}.ipynb", as_version=4).cells[0].source
    assert "**You need** {doc}`../ground/kernels`" in opening


def test_the_chapter_and_the_puzzles_are_the_part_on_kernels():
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    (part,) = [part for part in parts if part["caption"] == "Kernels"]
    assert [chapter["file"] for chapter in part["chapters"]] == ["ground/kernels", "ground/puzzles"]


# --- what the kernels call ---

PACKAGE = ROOT / "companion"
SHOWN = re.compile(r'\bcuda\(\s*"([^"]+)",\s*"([^"]+)"')
EXCERPT = re.compile(r'\bexcerpt\(\s*"([^"]+)"')
LINKED = re.compile(r"\]\(\{\{ repository \}\}/blob/main/companion/([\w/.]+)\)")
DEFINED = re.compile(r"__device__[^;{}()=]*?\b(\w+)(?:<[^<>()]*>)?\s*\(")
LAMBDA = re.compile(r"\bauto (\w+) = \[")


def closure(path):
    """A source and what it includes of the project's own."""
    text = path.read_text(encoding="utf-8")
    found = [path]
    for name in re.findall(r'#include "([^"]+)"', text):
        found += closure(next(at / name for at in (path.parent, PACKAGE / "cuda") if (at / name).exists()))
    return found


def called_and_not_shown(notebook):
    """The functions of the project that what a page shows of kernels calls, and that it neither shows nor links to."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    sources = {path for path, _ in SHOWN.findall(code)} | set(EXCERPT.findall(code))
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    linked = {PACKAGE / path for path in LINKED.findall(text)}
    assert {file for file in linked if not file.exists()} == set()
    files = {file for path in sources for file in closure(PACKAGE / path)} - linked
    defined = {name for file in files for name in DEFINED.findall(without_comments(file.read_text(encoding="utf-8")))}
    texts = [
        "".join(output.data["text/markdown"])
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "```cpp" in output.get("data", {}).get("text/markdown", "")
    ]
    shown = without_comments("\n".join(texts))
    # members that a constructor initialises are not called
    calling = re.sub(r"\)\s*:\s*\w+\([^{]*\{", ") {", shown)
    calls = {name for name in defined if re.search(rf"\b{name}(?:<[\w:,& ]*>)?\(", calling)}
    return sorted(calls - set(DEFINED.findall(shown)) - set(LAMBDA.findall(shown)))


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


@together("name", PAGES)
def test_a_kernel_page_shows_every_function_that_its_kernels_call_or_links_its_file(name):
    notebook = nbformat.read(BOOK / "mechanisms" / f"{name}.ipynb", as_version=4)
    assert called_and_not_shown(notebook) == []


def test_a_function_that_is_called_and_not_shown_is_found():
    notebook = nbformat.read(BOOK / "mechanisms" / "dnrt-kernel.ipynb", as_version=4)
    notebook.cells = [cell for cell in notebook.cells if "hide-output" not in cell.metadata.get("tags", [])]
    assert {"load_tile", "weighted_sum", "to_float"} <= set(called_and_not_shown(notebook))
