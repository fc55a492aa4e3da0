"""Executing a notebook twice writes the same bytes, and nothing about this machine."""

import json

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbval import kernel

from book import conftest
from book._tools import gate
from book._tools.execute import execute, patiently

CHAPTER = """\
from companion.study import plotting

figure, axes = plotting.subplots(figsize=(3, 2))
axes.plot([0, 1], [0, 1])
plotting.show(figure, alt="A line.")"""


@pytest.fixture
def chapter(tmp_path):
    cells = [
        new_markdown_cell("# A chapter", id="title"),
        new_code_cell("import os\n\nprint(repr(os.environ['CUDA_VISIBLE_DEVICES']))", id="environment"),
        new_code_cell(CHAPTER, id="figure", metadata={"tags": ["hide-input"], "execution": {"a": "b"}}),
        new_code_cell("from companion.apa.study.figures import moving_curve\nmoving_curve()", id="moving"),
    ]
    path = tmp_path / "chapter.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_an_executed_notebook_passes_the_gate(chapter):
    execute(chapter)
    assert gate.notebook_faults(nbformat.read(chapter, as_version=4)) == []


def test_a_second_execution_changes_nothing(chapter):
    execute(chapter)
    first = chapter.read_bytes()
    execute(chapter)
    assert chapter.read_bytes() == first


def test_the_kernel_sees_no_gpu_and_tags_survive(chapter):
    execute(chapter)
    notebook = json.loads(chapter.read_text(encoding="utf-8"))
    assert notebook["cells"][1]["outputs"][0]["text"] == ["''\n"]
    assert notebook["cells"][2]["metadata"] == {"tags": ["hide-input"]}


def test_a_failing_cell_is_an_error_and_leaves_the_file_alone(tmp_path):
    path = tmp_path / "fails.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("1 / 0", id="fails")]), path)
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("deaths", "calls"), [(0, 1), (2, 3), (3, 3)])
def test_a_kernel_that_dies_as_it_starts_is_started_again_and_not_for_ever(deaths, calls):
    asked = []

    def start(name):
        asked.append(name)
        if len(asked) <= deaths:
            raise RuntimeError("Kernel died before replying")
        return f"{name} runs"

    if deaths < 3:
        assert patiently(start)(name="python3") == "python3 runs"
    else:
        with pytest.raises(RuntimeError, match="Kernel died"):
            patiently(start)(name="python3")
    assert asked == ["python3"] * calls


def test_nbval_starts_kernels_so(monkeypatch):
    before = kernel.start_new_kernel
    monkeypatch.setattr(kernel, "start_new_kernel", before)
    monkeypatch.setattr(conftest, "ENVIRONMENT", {})
    conftest.pytest_configure()
    assert kernel.start_new_kernel.__wrapped__ is before
    assert kernel.RunningKernel.__init__.__globals__["start_new_kernel"] is kernel.start_new_kernel
