"""The gate lets clean notebooks and files pass, and stops each fault."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from book._tools import gate
from book._tools.execute import clean
from book._tools.places import repository

SVG = '<svg role="img" aria-label="A curve."></svg>'


def _notebook(*cells):
    notebook = new_notebook(cells=list(cells))
    clean(notebook)
    return notebook


def _code(source="1 + 1", count=1, outputs=(), **metadata):
    return new_code_cell(source, execution_count=count, outputs=list(outputs), metadata=metadata)


def _display(**data):
    return new_output("display_data", data={key.replace("_", "/", 1): value for key, value in data.items()})


def _faults(*cells):
    return gate.notebook_faults(_notebook(*cells))


def test_a_clean_notebook_passes():
    cells = (
        new_markdown_cell("# Title\n\nInline $z$, and a price of `$$`."),
        _code(outputs=[new_output("stream", name="stdout", text="2\n")]),
        _code(count=2, outputs=[_display(text_html=SVG)]),
    )
    assert _faults(*cells) == []


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ((_code(count=None),), "code cell 1 was not executed"),
        ((_code(), _code(count=3)), "code cell 2 has the count 3"),
        ((_code(source="  "),), "code cell 1 is empty"),
        (
            (_code(outputs=[new_output("error", ename="E", evalue="no", traceback=[])]),),
            "code cell 1 failed: E: no",
        ),
        (
            (_code(outputs=[new_output("stream", name="stderr", text="careful")]),),
            "wrote to stderr: 'careful'",
        ),
        (
            (_code(outputs=[_display(image_png="aGk=")], mystnb={"image": {"alt": "A"}}),),
            "image/png and not SVG",
        ),
        (
            (_code(outputs=[new_output("display_data", data={"image/svg+xml": "<svg/>"})]),),
            "without alt text",
        ),
        ((_code(outputs=[_display(text_html="<svg></svg>")]),), "SVG figure without role and aria-label"),
        ((_code(outputs=[_display(text_html='<img src="a.svg">')]),), "image without alt text"),
        ((_code(outputs=[_display(text_html='<img alt="A" src="a.png">')]),), "image that is not SVG"),
        ((_code(tags=["tolerance=much"]),), "allowed is one such as"),
        ((_code(tags=["nbval-ignore-output"]),), "tells nbval not to compare"),
        ((_code("1  # NBVAL_IGNORE_OUTPUT"),), "tells nbval not to compare"),
        ((_code(outputs=[_display(text_html=SVG + SVG)]),), "of the same description"),
        ((new_markdown_cell("$$\nx\n$$"),), "has no label"),
        (
            (new_markdown_cell("$$\nx\n$$ (eq-apa-nothing)"),),
            "knows no formula for the label 'eq-apa-nothing'",
        ),
        (
            (new_markdown_cell("$$\nx\n$$ (eq-apa-aglu)"),),
            "the page and the registry differ at 'eq-apa-aglu'",
        ),
        ((new_markdown_cell("$$x$$"),), "written in another form"),
        ((new_markdown_cell("```{math}\nx\n```"),), "written in another form"),
        ((new_markdown_cell("\\begin{align}x\\end{align}"),), "written in another form"),
        ((new_markdown_cell("$$\nx\n$$", metadata={"tags": ["untested"]}),), "does not tell the reader"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_is_found(cells, message):
    assert any(message in fault for fault in _faults(*cells)), _faults(*cells)


def test_a_formula_that_says_it_is_untested_passes():
    cell = new_markdown_cell("*Not tested:*\n\n$$\nx\n$$", metadata={"tags": ["untested"]})
    assert _faults(cell) == []


def test_times_and_versions_in_the_metadata_are_found():
    notebook = _notebook(_code())
    notebook.cells[0].metadata["execution"] = {"iopub.execute_input": "now"}
    notebook.metadata["language_info"]["version"] = "3.11.7"
    assert len(gate.notebook_faults(notebook)) == 2


@pytest.mark.parametrize("folder", ["home/ada", "usr/lib", "tmp/x", "opt/conda"])
def test_an_absolute_path_in_an_output_is_found(folder):
    output = new_output("stream", name="stdout", text=f"see /{folder}/file.py\n")
    assert any("absolute path" in fault for fault in _faults(_code(outputs=[output])))


@pytest.mark.parametrize(
    "text",
    [
        "/ho" + "me/ada/book",
        "C:\\Use" + "rs\\ada",
        "/wo" + "rk/main",
        "https://pyp" + "i.org/simple",
        "--inde" + "x-url https://example.org",
        "https://download.pytorc" + "h.org/whl",
        "http://192.16" + "8.0.7/",
    ],
)
def test_an_address_in_a_file_is_found(text):
    assert gate.text_faults(text)


@pytest.mark.parametrize(
    "text",
    ["https://doi.org/10.1093/jxb/10.2.290", "#!/bin/sh", "/usr/bin/chromium", "framework/main", "a/work/b"],
)
def test_a_harmless_address_passes(text):
    assert gate.text_faults(text) == []


def test_the_name_of_this_machine_is_found_as_a_word():
    names = frozenset({"node-17"})
    assert gate.text_faults("ran on node-17.", names=names)
    assert gate.text_faults("ran on node-173.", names=names) == []


def test_the_index_of_this_machine_counts_among_its_names(monkeypatch):
    monkeypatch.setenv("UV_INDEX_URL", "https://mirror.example.org/simple")
    assert "mirror.example.org" in gate.machine_names()


def test_every_committed_notebook_passes():
    assert gate.book_faults() == []


def test_every_page_shows_registered_formulas():
    assert gate.page_faults() == []


def test_the_address_of_the_repository_belongs_in_two_files(monkeypatch, tmp_path):
    monkeypatch.setattr(gate, "ROOT", tmp_path)
    named = [tmp_path / name for name in ("_config.yml", "pyproject.toml", "README.md")]
    for path in named:
        path.write_text(f"see {repository()}\n", encoding="utf-8")
    monkeypatch.setattr(gate, "project_files", lambda: named)
    (fault,) = gate.file_faults()
    assert fault.startswith("README.md:1 names the repository's address")


def test_no_file_names_a_machine_or_the_repository():
    assert gate.file_faults() == []


def test_a_committed_notebook_is_valid():
    from book._tools.places import notebooks

    for path in notebooks():
        nbformat.validate(nbformat.read(path, as_version=4))
