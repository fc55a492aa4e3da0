"""How a file is written so that nobody sees a part of it, and the user's own folder for what is compiled.

What lies in the cache is run with the rights of whoever loads it. Two things guard it:

- *Who can write there.* What is missing is made with mode 0700 (folders) and 0600 (files), whatever the umask. Before
  anything is loaded, the cache's root, the folders on the way and the file must belong to the user, and nobody else may
  be allowed to write to them: `check_owner` raises PermissionError otherwise. Folders above the root are not looked at:
  where others can rename those, or the root has a link on its way that others can change, choose another place.
  Windows has no such modes; there the cache is as safe as the user's profile.
- *What is there.* `keep` puts a file into a folder whose name ends with the SHA-256 of the file's content, and `kept`
  computes it again before the file is loaded. This finds what was damaged, cut or exchanged by mistake. It is no
  signature: who can write to the cache can also write the name that fits. Against others only the first guard helps,
  and against programs of the same user nothing does.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

# --- the cache ---------------------------------------------------------------------------------------------------


def cache_directory(*parts: str) -> Path:
    """A folder of the cache, that is of ``$COMPANION_CACHE`` or else the user's cache; of a temporary one if need be.

    The temporary one serves where the folder cannot be made or the user's own one is read-only.

    Parameters
    ----------
    *parts : str
        Folders below it.

    Returns
    -------
    Path
        An existing folder that nobody else can write to.

    Raises
    ------
    PermissionError
        If somebody else owns the folder or can write to it.
    """
    folder = _cache_root()
    for part in parts:
        folder = folder / part
        make_folder(folder)
        check_owner(folder)
    return folder


def _cache_root() -> Path:
    chosen = os.environ.get("COMPANION_CACHE")
    usual = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(chosen) if chosen else Path(usual) / "companion"
    try:
        make_folder(folder)
    except OSError:
        return temporary_directory()  # a read-only home
    check_owner(folder.resolve())
    return folder if os.access(folder, os.W_OK | os.X_OK) else temporary_directory()


@functools.cache
def temporary_directory() -> Path:
    """A temporary folder that nobody else can write to, since code is loaded from it."""
    user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""  # Windows: the temporary folder is the user's own
    root = Path(tempfile.gettempdir()) / f"companion{user}"
    try:
        make_folder(root)
        check_owner(root)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="companion-"))  # somebody else was there first
    return root


def make_folder(path: Path) -> None:
    """Make a folder and those above it; what was missing is the user's alone, whatever the umask."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            folder.mkdir(mode=0o700)
            folder.chmod(0o700)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is no folder")


def check_owner(path: Path) -> None:
    """Raise PermissionError if anybody but the user can change a file or folder of the cache.

    Raises
    ------
    PermissionError
        If it belongs to somebody else, is a link, or its group or others can write to it. The message names it and
        what mends it.
    """
    if not hasattr(os, "getuid"):  # Windows
        return
    status, user = path.lstat(), os.getuid()
    if status.st_uid != user:
        reason = f"belongs to user {status.st_uid}, and you are user {user}: remove it"
    elif stat.S_ISLNK(status.st_mode):
        reason = "is a link: remove it"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        reason = f"can be written to by others (mode {stat.S_IMODE(status.st_mode):04o}): run `chmod -R go-w {path}`"
    else:
        return
    raise PermissionError(
        f"{path} {reason}, or set COMPANION_CACHE to a folder of your own. Compiled code is kept there, and what "
        "others put there would run with your rights"
    )


def keep(folder: Path, key: str, name: str, make: Callable[[Path], object], mode: int = 0o600) -> Path:
    """Find a file that was kept, or make and keep it.

    Processes that make it at the same time do not disturb each other, and none sees a part of it.

    Parameters
    ----------
    folder : Path
        Of the cache: what `cache_directory` returned.
    key : str
        Names all that the content depends on.
    name : str
        Of the file.
    make : callable
        Writes the file to the path that it is given. What else it leaves in that path's folder is removed.
    mode : int
        Of the file: 0o700 for a program.

    Returns
    -------
    Path
        ``<folder>/<key>-<SHA-256 of the content>/<name>``.

    Raises
    ------
    PermissionError
        If somebody else can change what lies there.
    """
    if (found := kept(folder, key, name)) is not None:
        return found
    with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as place:
        unfinished, entry = Path(place) / "making" / name, Path(place) / "made" / name
        make_folder(unfinished.parent)
        make_folder(entry.parent)
        make(unfinished)
        if (found := kept(folder, key, name)) is not None:
            return found  # another process was faster; what two compilers make may differ in a byte
        unfinished.rename(entry)
        entry.chmod(mode)
        _force_to_disk(entry)
        target = folder / f"{key}-{_digest(entry)}"
        try:
            entry.parent.rename(target)
        except OSError:
            if not target.is_dir():  # else another process made the same
                raise
    if (found := kept(folder, key, name)) is None:
        raise OSError(f"{target / name} was written, and what is there now is something else")
    return found


def kept(folder: Path, key: str, name: str) -> Path | None:
    """A file that `keep` has put there, if its content is what it was; None, and nothing there, if not.

    Raises
    ------
    PermissionError
        If somebody else can change what lies there.
    """
    check_owner(folder)
    for entry in [entry for entry in folder.iterdir() if entry.name.rpartition("-")[0] == key]:
        file = entry / name
        with contextlib.suppress(FileNotFoundError):  # another process found the damage, too
            check_owner(entry)
            check_owner(file)
            if _digest(file) == entry.name.rpartition("-")[2]:
                return file
        shutil.rmtree(entry, ignore_errors=True)
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- writing -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def making(path: Path) -> Iterator[Path]:
    """A place for a file until it is finished, in a folder of its own; then it becomes ``path``, whole.

    It does so whenever the process or the machine stops; after an error ``path`` is what it was, and nothing else is
    left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="making-") as folder:
        unfinished = Path(folder) / path.name
        yield unfinished
        _force_to_disk(unfinished)
        unfinished.replace(path)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that exists whole or not at all, for other processes and after whatever stops this one.

    Raises
    ------
    OSError
        If it cannot be written: the disk is full, or the folder read-only. The message names the file.
    """
    try:
        with making(path) as unfinished:
            unfinished.write_bytes(content)
    except OSError as error:
        # Of the caller's file, not of the unfinished one.
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_privately(path: Path, content: bytes) -> None:
    """Write a file of the cache as `write_atomically` does, with mode 0600."""
    with making(path) as unfinished:
        unfinished.write_bytes(content)
        unfinished.chmod(0o600)


def _force_to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
