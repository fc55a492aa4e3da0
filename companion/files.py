"""Where compiled kernels are kept between processes, and how a file is written so that nobody sees a part of it."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_directory() -> Path:
    """The first folder that can be written to: ``$COMPANION_CACHE`` or else the user's cache, then a temporary one.

    Returns
    -------
    Path
        An existing folder.
    """
    chosen = os.environ.get("COMPANION_CACHE")
    usual = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(chosen) if chosen else Path(usual) / "companion"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return temporary_directory()  # a read-only home
    return folder if os.access(folder, os.W_OK | os.X_OK) else temporary_directory()


@functools.cache
def temporary_directory() -> Path:
    """A temporary folder that nobody else can write to, since code is loaded from it."""
    if not hasattr(os, "getuid"):  # Windows: the temporary folder is the user's own
        root = Path(tempfile.gettempdir()) / "companion"
        root.mkdir(exist_ok=True)
        return root
    root = Path(tempfile.gettempdir()) / f"companion-{os.getuid()}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        status = root.lstat()
        if status.st_uid == os.getuid() and status.st_mode & 0o077 == 0 and not root.is_symlink():
            return root
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="companion-"))


@contextlib.contextmanager
def making(path: Path) -> Iterator[Path]:
    """A place for a file until it is finished, in a folder of its own; then it becomes ``path``, whole.

    It does so whenever the process or the machine stops; after an error nothing is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="making-") as folder:
        unfinished = Path(folder) / path.name
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that exists whole or not at all, for other processes and after whatever stops this one."""
    with making(path) as unfinished:
        unfinished.write_bytes(content)
