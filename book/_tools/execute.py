"""Execute notebooks in place: ``python -m book._tools.execute [NOTEBOOK …]``; without names, all of them.

What is written depends on the code alone: no GPU, one thread, no times, no version of this machine's Python.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from book._tools.outputs import Tolerance, settled
from book._tools.places import ROOT, notebooks
from companion.files import write_atomically

T = TypeVar("T")

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "version": "3"}

# What a kernel sees here, in `make test` and in CI.
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "MKL_NUM_THREADS": "1",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def patiently(start: Callable[..., T], attempts: int = 3) -> Callable[..., T]:
    """Return a function that starts a kernel once more where the last one died before it answered.

    A kernel is told its ports before it binds them. Of two that start at the same moment one may find a port taken.

    Parameters
    ----------
    start
        Starts a kernel, or raises RuntimeError.
    attempts
        How often it may be called.
    """

    @functools.wraps(start)
    def started(*args: Any, **options: Any) -> T:
        for _ in range(attempts - 1):
            with contextlib.suppress(RuntimeError):
                return start(*args, **options)
        return start(*args, **options)

    return started


def execute(path: Path, timeout: int = 600) -> None:
    """Run every cell of a notebook from top to bottom and save it with its outputs.

    Where a new output says the same as the old one, within what processors may differ by, the old one stays: so
    executing on another processor changes nothing.

    Parameters
    ----------
    path
        The notebook. It is saved only if every cell ran.
    timeout
        The longest that one cell may take, in seconds.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    clean(notebook)
    before = {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute(env=os.environ | ENVIRONMENT)
    clean(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            tolerance = Tolerance.of(cell.metadata.get("tags", ()))
            cell.outputs = settled(coalesced(cell.outputs), before[cell.id], tolerance)
    save(notebook, path)


def clean(notebook: NotebookNode) -> None:
    """Remove from a notebook's metadata whatever tells about the machine and the hour."""
    notebook.metadata = NotebookNode(kernelspec=NotebookNode(KERNEL), language_info=NotebookNode(LANGUAGE))
    for cell in notebook.cells:
        kept = {key: cell.metadata[key] for key in ("tags", "mystnb", "jupyter") if cell.metadata.get(key)}
        cell.metadata = NotebookNode(kept)


def coalesced(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Outputs in which neighbouring pieces of one stream are one: how a stream is cut depends on the hour."""
    whole: list[NotebookNode] = []
    for output in outputs:
        last = whole[-1] if whole else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            whole.append(output)
    return whole


def save(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook, whole or not at all."""
    nbformat.validate(notebook)
    write_atomically(path, text_of(notebook).encode())


def text_of(notebook: NotebookNode) -> str:
    """The file of a notebook."""
    return f"{nbformat.writes(notebook)}\n"


def main() -> None:
    """Execute the notebooks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", nargs="*", type=Path)
    for path in parser.parse_args().notebook or notebooks():
        execute(path.resolve())
        print(f"executed {path.resolve().relative_to(ROOT)}")


if __name__ == "__main__":
    main()
