"""Files of data sets that no library brings: from where their authors have them, checked whenever they are read."""

import hashlib
import http.client
import urllib.request
from pathlib import Path

from companion.files import make_folder, write_atomically

__all__ = ["downloaded"]

# Seconds without an answer.
_TIMEOUT = 60


def downloaded(path: Path, address: str, sha256: str) -> Path:
    """Make sure that a file is there and whole; download it if it is absent.

    Parameters
    ----------
    path : pathlib.Path
        Where it lies or goes to.
    address : str
        Where it comes from.
    sha256 : str
        What it must hold, in hexadecimal digits.

    Returns
    -------
    pathlib.Path
        The same.

    Raises
    ------
    FileNotFoundError
        If it is absent and cannot be downloaded.
    ValueError
        If it is damaged. Both messages name the file.
    """
    if not path.is_file():
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:
                content = answer.read()
            if (found := hashlib.sha256(content).hexdigest()) != sha256:
                raise OSError(f"what came has the SHA-256 {found}, not {sha256}")
        except (OSError, http.client.HTTPException) as error:
            raise FileNotFoundError(
                f"{path} is absent and cannot be downloaded ({error}); with a network this call fetches it from "
                f"{address}, without one put it there, or set COMPANION_DATA to the folder that has it"
            ) from error
        make_folder(path.parent)
        write_atomically(path, content)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise ValueError(
            f"{path} is damaged: its SHA-256 is {found}, not {sha256}; remove it, and the next call fetches it again"
        )
    return path
