"""What a result was computed with: versions, hardware, code. Never a host, a user or a path."""

import ast
import hashlib
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy
import torch

__all__ = ["code_stamp", "environment", "git_state"]

_PACKAGE = Path(__file__).resolve().parents[1]
# What experiments of every mechanism stand on.
_FLOOR = (
    "analysis",
    "baselines.py",
    "corruptions.py",
    "datasets.py",
    "experiments/classification.py",
    "models",
    "surgery",
    "training.py",
)
# Files that do not change an experiment's numbers: a kernel and its launcher are tested to give the operator's.
_ASIDE = {"__init__.py", "bench.py", "claims.py", "constructions.py", "formulas.py", "kernel.py"}


def code_stamp(mechanism: str) -> str:
    """Return a stamp of the source files that the numbers of a mechanism's experiments depend on.

    These are the shared floor (training, data, networks, measures, public functions) and the mechanism's
    folder. Comments, docstrings and layout do not count: the stamp is taken of the parsed code.

    Parameters
    ----------
    mechanism : str
        Its folder in companion/.

    Returns
    -------
    str
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for entry in (*_FLOOR, mechanism):
        path = _PACKAGE / entry
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.name in _ASIDE or not file.is_file():
                continue
            digest.update(file.relative_to(_PACKAGE).as_posix().encode())
            digest.update(_essence(file.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()[:16]


def _essence(source: str) -> str:
    """Return source text without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def environment(device: str) -> dict[str, Any]:
    """Return versions and hardware, as far as they can change a number.

    Parameters
    ----------
    device : str
        "cpu" or "cuda": whether the GPU's name belongs to it.

    Returns
    -------
    dict
        Keys "versions" and "hardware".
    """
    return {
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "scipy": _version("scipy"),
            "scikit-learn": _version("scikit-learn"),
            "companion": _version("rethinking-the-neuron"),
        },
        "hardware": {
            "cpu": _cpu(),
            "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        },
    }


def git_state() -> dict[str, Any] | None:
    """Return the commit and whether the package differs from it; None outside a git checkout."""
    if not (_PACKAGE.parent / ".git").exists():
        return None
    try:
        status = _git("status", "--porcelain", "--", "companion")
    except (OSError, subprocess.CalledProcessError):
        return None
    try:
        commit = _git("rev-parse", "--verify", "HEAD").strip()
    except subprocess.CalledProcessError:
        # A repository before its first commit.
        return {"commit": None, "dirty": True}
    return {"commit": commit, "dirty": bool(status.strip())}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=_PACKAGE.parent, capture_output=True, text=True, check=True).stdout


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
