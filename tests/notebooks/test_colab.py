"""A Colab copy folds in Colab's way, and its first cell installs the package without touching what Colab ships."""

import re
import subprocess
import sys
import tomllib

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from packaging.version import Version

from book._tools import colab
from book._tools.places import ROOT, notebooks, page_address, release_tag, repository


def _install(*code):
    notebook = new_notebook(cells=[new_code_cell(source) for source in code])
    return colab._install(notebook, "v1.2.3").source


def test_the_first_cell_installs_the_release_and_nothing_else():
    lines = _install("import torch").splitlines()
    assert lines[0] == f'%pip install --quiet --no-deps "rethinking-the-neuron @ git+{repository()}@v1.2.3"'
    assert sum("pip install" in line for line in lines) == 1


def test_the_lowest_versions_are_those_of_pyproject():
    code = "from sklearn.datasets import load_digits\nfrom companion.study import plotting"
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
            assert after.source.startswith("# @title ") is hidden
            assert after.source.endswith(before.source)
            assert "jupyter" not in after.metadata


def test_the_default_tag_is_that_of_the_version():
    assert Version(release_tag().removeprefix("v"))
