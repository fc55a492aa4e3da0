"""A copy for Jupyter holds no MyST, folds what the page folds, and replaces nothing that a reader has written."""

import re
import sys

import nbformat
import pytest
from nbformat.sign import NotebookNotary
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from book._tools import plain
from book._tools.places import BOOK, notebooks, page_address, repository

AGLU = "$$\nz \\eta\n$$ (eq-apa-aglu)"


@pytest.fixture
def copy(tmp_path):
    """Make the copy of a chapter with the given cells."""

    def make(*cells, ref="v1.2.3"):
        path = BOOK / "mechanisms" / "sample.ipynb"
        source = tmp_path / "sample.ipynb"
        nbformat.write(new_notebook(cells=list(cells)), source)
        notebook = nbformat.read(source, as_version=4)
        page = plain._Page(path, notebook, ref)
        return [page.plain(cell.source) for cell in notebook.cells if cell.cell_type == "markdown"]

    return make


@pytest.mark.parametrize(
    ("myst", "plain"),
    [
        (":::{note}\nRead *this*.\n:::", "> **Note**\n>\n> Read *this*.\n"),
        ("```{warning}\nCareful.\n```", "> **Warning**\n>\n> Careful.\n"),
        ("::::{admonition} The idea\n:class: tip\n\nOne.\n::::", "> **The idea**\n>\n> One.\n"),
        (
            ":::{dropdown} Solution\nIt is $z$.\n:::",
            "<details>\n<summary>Solution</summary>\n\nIt is $z$.\n\n</details>\n",
        ),
        ("(a-label)=\n## Heading", "## Heading"),
        ("% a comment\ntext", "text"),
        ("the function {func}`companion.functional.aglu`", "the function `companion.functional.aglu`"),
        (":::{note}\nSo\n\n$$\nx\n= 1\n$$\n:::", "> **Note**\n>\n> So\n>\n> $$ x = 1 $$\n"),
        (
            "<a href='../appendix/claims.html#apa-silu'>shown</a>",
            f"<a href='{page_address(BOOK / 'appendix' / 'claims.ipynb')}#apa-silu'>shown</a>",
        ),
        (
            "<a href='../appendix/claims.html?paper=DNRT'>its lines</a>",
            f"<a href='{page_address(BOOK / 'appendix' / 'claims.ipynb')}?paper=DNRT'>its lines</a>",
        ),
        ("{math}`z`", "$z$"),
        ("```{code-block} python\nx = 1\n```", "```python\nx = 1\n```"),
        ("```python\n# {note} stays\n```", "```python\n# {note} stays\n```"),
        ("`{doc}` in code", "`{doc}` in code"),
        ("[a page](../preface.md)", f"[a page]({page_address(BOOK / 'preface.md')})"),
        ("[out](https://example.org)", "[out](https://example.org)"),
        ("{doc}`../preface`", f"[Rethinking the Neuron]({page_address(BOOK / 'preface.md')})"),
        ("{doc}`the start <../preface>`", f"[the start]({page_address(BOOK / 'preface.md')})"),
        ("{cite:t}`richards1959`", "[Richards (1959)](https://doi.org/10.1093/jxb/10.2.290)"),
        ("{cite:p}`he2015prelu`", "([He et al., 2015](https://doi.org/10.1109/ICCV.2015.123))"),
        ("clone {{ repository }}", f"clone {repository()}"),
        (
            "```{eval-rst}\n.. automodule:: companion\n   :members:\n```",
            f"[On the page.]({page_address(BOOK / 'mechanisms' / 'sample.ipynb')})",
        ),
    ],
)
def test_myst_becomes_markdown(copy, myst, plain):
    assert copy(new_markdown_cell(myst)) == [plain]


def test_directives_nest(copy):
    myst = "::::{admonition} Exercise 1\nDerive.\n\n:::{dropdown} Solution\n```python\n1\n```\n:::\n::::"
    (plain,) = copy(new_markdown_cell(myst))
    assert plain.startswith("> **Exercise 1**\n>\n> Derive.")
    assert "> <summary>Solution</summary>\n>\n> ```python\n> 1\n> ```" in plain


def test_equations_get_numbers_that_the_text_refers_to(copy):
    first = "$$\n\\eta\n$$ (eq-apa-eta)"
    text, equations = copy(new_markdown_cell("See {eq}`eq-apa-aglu`."), new_markdown_cell(f"{first}\n\n{AGLU}"))
    assert text == "See (2)."
    assert equations == "$$\n\\eta\n\\tag{1}\n$$\n\n$$\nz \\eta\n\\tag{2}\n$$"


def test_a_formula_without_a_number_has_none_in_the_copy_and_links_lead_to_the_page(copy):
    formula = "(eq-apa-eta)=\n$$\n\\eta\n$$"
    text, equations = copy(
        new_markdown_cell("See [η](#eq-apa-eta) and [σ](#eq-apa-sigmoid)."), new_markdown_cell(f"{formula}\n\n{AGLU}")
    )
    own, other = (
        page_address(BOOK / "mechanisms" / "sample.ipynb"),
        page_address(BOOK / "mechanisms" / "apa-derivation.ipynb"),
    )
    assert text == f"See [η]({own}#equation-eq-apa-eta) and [σ]({other}#equation-eq-apa-sigmoid)."
    assert equations == "$$\n\\eta\n$$\n\n$$\nz \\eta\n\\tag{1}\n$$"


def test_glued_values_stand_in_the_text(copy):
    cell = new_code_cell("glue(...)")
    for name, text in (("share", "0.1278"), ("found", "'no gain'")):
        data = {"application/papermill.record/text/plain": text}
        metadata = {"scrapbook": {"name": name, "mime_prefix": "application/papermill.record/"}}
        cell.outputs.append(new_output("display_data", data=data, metadata=metadata))
    prose = "{glue:text}`found`, {glue:text}`share` or {glue:text}`share:.1f` % or ${glue:text}`share:.2f` or `code`."
    assert copy(cell, new_markdown_cell(prose)) == ["no gain, 0.1278 or 0.1 % or $0.13 or `code`."]
    with pytest.raises(ValueError, match="no cell glues 'cost'"):
        copy(cell, new_markdown_cell("{glue:text}`cost`"))


@pytest.mark.parametrize("myst", [":::{mermaid}\nx\n:::", "{unknown}`x`", ":::{note}\nno end"])
def test_myst_without_translation_is_an_error(copy, myst):
    with pytest.raises(ValueError, match=r"cannot show|no end of"):
        copy(new_markdown_cell(myst))


def test_a_citation_without_entry_is_an_error(copy):
    with pytest.raises(ValueError, match="no entry 'nobody1900'"):
        copy(new_markdown_cell("{cite:t}`nobody1900`"))


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_the_copy_of_a_chapter_holds_no_myst(path):
    notebook = plain.plain_copy(path, "main")
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"```.*?```|`[^`]*`", "", cell.source, flags=re.DOTALL)
            assert not re.search(r"^:::|\{[a-z][\w:-]*\}`|^```\{|\$\$ \(", cell.source, re.MULTILINE), cell.source
            assert "{{" not in prose
            # in a quote a formula is on one line, or Jupyter typesets the marks of the quote
            assert all(line.count("$") % 2 == 0 for line in prose.splitlines() if line.startswith(">"))


@pytest.mark.parametrize(
    ("tags", "hidden"),
    [
        ([], set()),
        (["tolerance=1%"], set()),
        (["hide-input"], {"source"}),
        (["remove-input"], {"source"}),
        (["hide-output"], {"outputs"}),
        (["hide-input", "hide-output"], {"source", "outputs"}),
        (["hide-cell"], {"source", "outputs"}),
    ],
)
def test_what_a_page_hides_is_folded_below_a_line_that_says_what_it_is(tags, hidden):
    cell = new_code_cell("x = 1", metadata={"tags": tags, "mystnb": {"code_prompt_show": "Solution of exercise 1"}})
    plain._fold(cell)
    assert cell.metadata.get("jupyter", {}) == {f"{name}_hidden": True for name in hidden}
    assert cell.source == ("# Solution of exercise 1\nx = 1" if "source" in hidden else "x = 1")
    assert "mystnb" not in cell.metadata


def test_a_formula_is_found_on_a_page_that_is_not_copied(monkeypatch):
    monkeypatch.setattr(plain, "notebooks", list)
    plain._texts.cache_clear()
    plain._home_of_equation.cache_clear()
    assert plain._home_of_equation("eq-apa-eta") == BOOK / "mechanisms" / "apa.ipynb"


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    """Write the copies of two chapters, for a user who is nobody else."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "notebooks"
    chosen = [path for path in notebooks() if path.stem in ("apa-derivation", "kernels")]

    def run():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plain, "notebooks", lambda: chosen)
            patch.setenv("JUPYTER_DATA_DIR", str(home / "data"))
            patch.setattr(sys, "argv", ["plain", "--out", str(folder)])
            plain.main()
            with NotebookNotary() as notary:
                trusted = [notary.check_signature(nbformat.read(path, 4)) for path in sorted(folder.rglob("*.ipynb"))]
        return folder, trusted

    return run


def test_copies_are_trusted_and_what_a_reader_has_written_is_kept(write):
    folder, trusted = write()
    assert trusted == [True, True]
    assert write() == (folder, [True, True])
    mine = folder / "mechanisms" / "apa-derivation.ipynb"
    answers = mine.read_text(encoding="utf-8").replace("...", "my answer")
    mine.write_text(answers, encoding="utf-8")
    write()
    (kept,) = folder.glob("mechanisms/apa-derivation of *.ipynb")
    assert kept.read_text(encoding="utf-8") == answers
    assert "my answer" not in mine.read_text(encoding="utf-8")
