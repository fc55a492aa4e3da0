"""Colab's image, as far as the registries have it: ``python tests/colab.py chapters FOLDER`` and ``… kernels``.

For the Python in .venv-colab, into which the wheel was installed. Plain programs: what they print is who passed.
"""

from __future__ import annotations

import multiprocessing
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

#: Of the GPUs that Colab lends: T4, A100, H100. Left out, for the time it takes: L4 (89).
ARCHITECTURES = (75, 80, 90)


def run_chapter(path: Path) -> str | None:
    """Every cell, in an empty folder; the first without its first line, which would fetch the package."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.read(path, as_version=4)
    (install,) = (cell for cell in notebook.cells if cell.id == "colab-install")
    fetch, _, check = install.source.partition("\n")
    if not fetch.startswith("%pip install"):
        return f"the first cell begins with {fetch!r}"
    install.source = f"{check}\nimport companion\nassert 'site-packages' in companion.__file__"
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, kernel_name="python3", timeout=600, resources={"metadata": {"path": folder}})
        try:
            client.execute()
        except CellExecutionError as error:
            return str(error)
    said = "".join(output.get("text", "") for output in install.outputs)
    return None if said == "Ready.\n" else f"the first cell says {said!r}"


def compile_kernels(task: tuple[Path, int]) -> str | None:
    """All kernels of a source, for one architecture."""
    from companion.cuda import build

    source, arch = task
    # Here torch's wheel has brought the headers of CUDA 13, too; on Colab there are only these.
    folder = Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cuda_runtime" / "include"
    build._cuda_headers = lambda: (folder,)  # type: ignore[assignment]
    if build.compiler_version() != (12, 8):
        return f"this is NVRTC {build.compiler_version()}"
    try:
        code = build.cubin(source, arch).read_bytes()
    except build.CompileError as error:
        return str(error)
    return None if code.startswith(b"\x7fELF") else "this is no cubin"


def run_all(work: Callable[[Any], str | None], tasks: Sequence[Any], names: Sequence[str]) -> int:
    """Two at a time; print how each ended and how long it took."""
    failed = 0
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for name, (fault, seconds) in zip(names, pool.imap(_Timed(work), tasks), strict=True):
            print(f"{name:40} {seconds:4.0f} s  {'passed' if fault is None else 'FAILED: ' + fault}", flush=True)
            failed += fault is not None
    print(f"{len(tasks) - failed} passed, {failed} failed")
    return int(failed > 0 or not tasks)


class _Timed:
    def __init__(self, work: Callable[[Any], str | None]) -> None:
        self.work = work

    def __call__(self, task: Any) -> tuple[str | None, float]:
        start = time.monotonic()
        return self.work(task), time.monotonic() - start


def main(arguments: Sequence[str]) -> int:
    if arguments[0] == "chapters":
        paths = sorted(Path(arguments[1]).resolve().rglob("*.ipynb"))
        return run_all(run_chapter, paths, [path.stem for path in paths])
    import companion

    sources = sorted(Path(companion.__file__).parent.glob("*/*.cu"))
    tasks = list(product(sources, ARCHITECTURES))
    return run_all(compile_kernels, tasks, [f"{source.name} for sm_{arch}" for source, arch in tasks])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
