"""Copies of the notebooks for Colab: ``python -m book._tools.colab --out FOLDER --ref TAG``.

They are those for Jupyter (`book._tools.plain`), folded in Colab's way, and a first cell installs the package.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from packaging.requirements import Requirement
from packaging.version import Version

from book._tools.execute import save
from book._tools.places import ROOT, notebooks, page_address, release_tag, repository
from book._tools.plain import plain_copy

# The import name, where it differs from the distribution's.
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml", "IPython": "ipython"}


def colab_copy(path: Path, ref: str) -> NotebookNode:
    """The Colab copy of a notebook of the book.

    Parameters
    ----------
    path
        The notebook, below ``book/``.
    ref
        The commit, tag or branch that the first cell installs.

    Raises
    ------
    ValueError
        If the notebook holds MyST that has no translation.
    """
    notebook = plain_copy(path, ref)
    for cell in notebook.cells:
        if cell.metadata.pop("jupyter", {}).get("source_hidden"):
            cell.source = cell.source.replace("# ", "# @title ", 1)
            cell.metadata["cellView"] = "form"
    notebook.cells[:1] = [_greeting(path), _install(notebook, ref)]
    return notebook


def _greeting(path: Path) -> NotebookNode:
    text = (
        f"This is a copy for Colab of [a chapter of *Rethinking the Neuron*]({page_address(path)}). "
        "It is easier to read there, and can be run here.\n\n"
        "Run the next cell first. It installs the book's package and leaves torch, NumPy and CuPy as they "
        "are. With a GPU (Runtime → Change runtime type) the kernels run as well; without one all else does."
    )
    return nbformat.v4.new_markdown_cell(text, id="colab-greeting")


def _install(notebook: NotebookNode, ref: str) -> NotebookNode:
    needs = "\n".join(f'    "{name}": "{lowest}",' for name, lowest in requirements(notebook))
    source = f"""\
%pip install --quiet --no-deps "rethinking-the-neuron @ git+{repository()}@{ref}"

from importlib.metadata import PackageNotFoundError, version

from packaging.version import Version

needed = {{
{needs}
}}
missing = []
for name, lowest in needed.items():
    try:
        found = version(name)
    except PackageNotFoundError:
        found = None
    if found is None or Version(found) < Version(lowest):
        missing.append(f"{{name}} {{lowest}} or newer (here: {{found or 'not installed'}})")
if missing:
    print("This runtime is too old for the chapter. It needs", *missing, sep="\\n  ")
    print("Choose the newest runtime version under Runtime → Change runtime type, and run this cell again.")
    print("Do not upgrade torch, NumPy or CuPy with pip here: Colab's own versions fit its GPU driver.")
    print("If the newest runtime is too old, run the chapter on your own machine; the page 'Run and import' says how.")
else:
    print("Ready.")"""
    return nbformat.v4.new_code_cell(source, id="colab-install")


def requirements(notebook: NotebookNode) -> list[tuple[str, str]]:
    """What a notebook needs besides the package: distribution and lowest version, from pyproject.toml.

    torch is always among them.
    """
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    imported = set(re.findall(r"^\s*(?:import|from)\s+(\w+)", code, re.MULTILINE))
    names = {"torch"} | {_DISTRIBUTIONS.get(name, name) for name in imported}
    if "plotting" in code:
        names.add("matplotlib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = map(Requirement, project["dependencies"] + project["optional-dependencies"]["book"])
    return sorted((requirement.name, _lowest(requirement)) for requirement in declared if requirement.name in names)


def _lowest(requirement: Requirement) -> str:
    bounds = [Version(bound.version) for bound in requirement.specifier if bound.operator in (">=", "==", "~=")]
    return str(max(bounds, default=Version("0")))


def main() -> None:
    """Write the Colab copies of all notebooks, each at its path in the project."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that takes the copies")
    parser.add_argument("--ref", default=release_tag(), help="commit, tag or branch to install (default: %(default)s)")
    arguments = parser.parse_args()
    for path in notebooks():
        save(colab_copy(path, arguments.ref), arguments.out / path.relative_to(ROOT))
        print(f"copied {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
