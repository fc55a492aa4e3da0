"""Render the book: ``python -m book._tools.build``. A warning is an error.

Behind the download button of a chapter lies its copy for Jupyter, where Sphinx puts the page's source.

After a failure nothing is left behind: Sphinx warns about a page only when it reads the page anew, so a
second build over the remains of a failed one would pass.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from book._tools.execute import save
from book._tools.places import BOOK, ROOT, release_tag
from book._tools.plain import plain_copy


def build(output: Path = BOOK, source: Path = BOOK) -> Path:
    """Build the book below ``output`` and return the folder that holds its pages.

    Parameters
    ----------
    output
        The builder adds ``_build/html`` to it.
    source
        The folder that holds the pages. The configuration and the table of contents lie beside it.

    Raises
    ------
    RuntimeError
        With the builder's messages, if there was an error or a warning.
    """
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(source)]
    command += ["--config", str(source.parent / "_config.yml"), "--toc", str(source.parent / "_toc.yml")]
    command += ["--path-output", str(output), "-W", "--keep-going", "-q"]
    # The API reference imports the package; it must look the same on a machine with a GPU.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "NO_COLOR": "1"}
    with _alone(output):
        result = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if result.returncode:
            for remains in ("html", ".doctrees", ".jupyter_cache"):
                shutil.rmtree(output / "_build" / remains, ignore_errors=True)
            raise RuntimeError(f"the book does not build:\n{result.stdout}")
        pages = output / "_build" / "html"
        # Where no page has changed Sphinx writes nothing, and no new style either.
        if (style := source / "_static").is_dir():
            shutil.copytree(style, pages / "_static", dirs_exist_ok=True)
        for download in (pages / "_sources").rglob("*.ipynb"):
            save(plain_copy(source / download.relative_to(pages / "_sources"), release_tag()), download)
    return pages


@contextmanager
def _alone(output: Path) -> Iterator[None]:
    """Two builds in one folder, started by two test workers, run one after the other."""
    (output / "_build").mkdir(parents=True, exist_ok=True)
    with (output / "_build" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Build the book and say where it lies, relative to the project."""
    try:
        pages = build()
    except RuntimeError as error:
        sys.exit(str(error))
    print(f"The book lies in {(pages / 'index.html').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
