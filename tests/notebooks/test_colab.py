"""A Colab copy holds no MyST, and its first cell installs the package without touching what Colab ships."""

import re
import subprocess
import sys
import tomllib

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from packaging.version import Version

from book._tools import colab
from book._tools.places import BOOK, ROOT, notebooks, page_address, repository

AGLU = "$$\nz \\eta\n$$ (eq-apa-aglu)"


@pytest.fixture
def copy(tmp_path):
    """Make the Colab copy of a chapter with the given cells."""

    def make(*cells, ref="v1.2.3"):
        path = BOOK / "mechanisms" / "sample.ipynb"
        source = tmp_path / "sample.ipynb"
        nbformat.write(new_notebook(cells=list(cells)), source)
        notebook = nbformat.read(source, as_version=4)
        page = colab._Page(path, notebook, ref)
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


def _install(*code):
    notebook = new_notebook(cells=[new_code_cell(source) for source in code])
    return colab._install(notebook, "v1.2.3").source


def test_the_first_cell_installs_the_release_and_nothing_else():
    lines = _install("import torch").splitlines()
    assert lines[0] == f'%pip install --quiet --no-deps "rethinking-the-neuron @ git+{repository()}@v1.2.3"'
    assert sum("pip install" in line for line in lines) == 1


def test_the_lowest_versions_are_those_of_pyproject():
    code = "from sklearn.datasets import load_digits\nfrom companion import plotting"
    notebook = new_notebook(cells=[new_code_cell(code)])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split("[=>]", line)[0]: line for line in project["dependencies"]}
    declared |= {re.split("[=>]", line)[0]: line for line in project["optional-dependencies"]["book"]}
    found = dict(colab.requirements(notebook))
    assert set(found) == {"torch", "scikit-learn", "matplotlib"}
    for name, lowest in found.items():
        assert declared[name].endswith(lowest)


def test_the_first_cell_is_content_with_this_environment():
    check = _install("import torch").split("\n", 1)[1]
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout == "Ready.\n"


def test_the_first_cell_explains_what_to_do_about_an_old_version():
    check = re.sub(r'"torch": "[^"]*"', '"torch": "99.0", "nowhere": "1"', _install("import torch").split("\n", 1)[1])
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert "torch 99.0 or newer (here: " in result.stdout
    assert "nowhere 1 or newer (here: not installed)" in result.stdout
    assert "Choose the newest runtime version" in result.stdout
    assert "Do not upgrade torch, NumPy or CuPy" in result.stdout


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_the_copy_of_a_chapter_holds_no_myst(path):
    notebook = colab.colab_copy(path, "main")
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"```.*?```|`[^`]*`", "", cell.source, flags=re.DOTALL)
            assert not re.search(r"^:::|\{[a-z][\w:-]*\}`|^```\{|\$\$ \(", cell.source, re.MULTILINE), cell.source
            assert "{{" not in prose


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_the_copy_of_a_chapter_begins_with_the_installation(path):
    greeting, install = colab.colab_copy(path, "main").cells[:2]
    assert page_address(path) in greeting.source
    assert install.source.startswith("%pip install --quiet --no-deps")


def test_a_hidden_cell_is_folded_in_the_copy():
    for path in notebooks():
        original = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        copied = [cell for cell in colab.colab_copy(path, "main").cells[2:] if cell.cell_type == "code"]
        for before, after in zip(original, copied, strict=True):
            hidden = bool({"hide-cell", "hide-input", "remove-input"} & set(before.metadata.get("tags", [])))
            assert (after.metadata.get("cellView") == "form") is hidden
            assert after.source.endswith(before.source)


def test_the_default_tag_is_that_of_the_version():
    assert Version(colab.default_ref().removeprefix("v"))
