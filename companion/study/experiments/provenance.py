"""What a result was computed with: versions, hardware, code. Never a host, a user or a path.

Of the code, a result remembers what it gave: the rows of the experiment's smoke preset. `differences` compares them
with what today's code gives.
"""

import ast
import hashlib
import inspect
import io
import math
import os
import platform
import subprocess
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch

from companion import rooms
from companion.study.experiments.registry import Experiment, Row

__all__ = ["code", "differences", "environment", "git_state", "homes", "machine", "precision"]

_PACKAGE = Path(__file__).resolve().parents[2]
# Relative. With and without vector extensions the first loss of a training differs by 3e-7 and the second by 2e-5; from
# the third on, rounding may have chosen another side of a kink.
_LOSSES = 1e-3
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def differences(experiment: Experiment, stored: Sequence[Row], given: Sequence[Row]) -> list[str]:
    """Say where the rows of a smoke preset differ by more than processors differ.

    Words, counts, keys and learning rates must be equal, losses to a thousandth, measures to the experiment's
    ``tolerance``.

    Parameters
    ----------
    experiment : Experiment
        Whose rows they are.
    stored : sequence of dict
        What the code of a result gave.
    given : sequence of dict
        What the code of today gives.

    Returns
    -------
    list of str
        A phrase for each value that differs; none, if the result is not outdated.

    Examples
    --------
    >>> from companion.study.experiments import get
    >>> stored = [{"activation": "relu", "seed": 0, "first_losses": [2.31, 2.2], "accuracy": 0.5}]
    >>> differences(get("apa-digits"), stored, [{**stored[0], "first_losses": [2.31, 2.1]}])
    ['first_losses of row 0 was [2.31, 2.2] and is [2.31, 2.1]']
    """
    if len(stored) != len(given):
        return [f"there were {len(stored)} rows and are {len(given)}"]
    return [
        f"{key} of row {number} was {before.get(key)} and is {now.get(key)}"
        for number, (before, now) in enumerate(zip(stored, given, strict=True))
        for key in before | now
        if not _alike(key, before.get(key, ...), now.get(key, ...), experiment.tolerance)
    ]


def _alike(key: str, before: Any, now: Any, tolerance: float) -> bool:
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(_alike(key, a, b, tolerance) for a, b in zip(before, now, strict=True))
    if isinstance(before, float) and isinstance(now, float) and key != "learning_rate":
        if key == "first_losses":
            return math.isclose(before, now, rel_tol=_LOSSES)
        return abs(before - now) <= tolerance * max(1, abs(before))
    return bool(before == now)


def homes(experiment: Experiment) -> tuple[Path, ...]:
    """Return the files in which the functions of an experiment stand, sorted.

    Parameters
    ----------
    experiment : Experiment
        Of which.

    Returns
    -------
    tuple of pathlib.Path
        Of each function of a ``functools.partial``, too; and where all mechanisms meet, those in which they declare
        their neurons, which are imported by the names of rooms. Files of the package are named from its folder, which
        lies elsewhere on another machine.
    """
    functions: list[Any] = [experiment.cases, experiment.measure, experiment.validate]
    found = set()
    while functions:
        function = functions.pop()
        if isinstance(function, partial):
            functions += [function.func, *function.args, *function.keywords.values()]
        elif inspect.isfunction(function):
            file = Path(inspect.getfile(function)).resolve()
            found.add(file.relative_to(_PACKAGE) if file.is_relative_to(_PACKAGE) else file)
    if experiment.mechanism in rooms.CHAPTERS:
        found |= {Path("neurons", "controls.py"), *(Path(room, "neuron.py") for room in rooms.ROOMS)}
    return tuple(sorted(found))


def code(files: Iterable[Path], device: str) -> str:
    """Return a hash of the code that an experiment's numbers depend on, as it lies on the disk now.

    It holds the modules in which the experiment's functions stand and all of the package that these import, directly or
    not, wherever in them, without comments and docstrings; a name that a package only passes on counts as what it
    stands for. What launches kernels, and the kernels themselves, count where the device is a GPU. And it holds torch's
    release, which brings random numbers, initialisations, optimisers and operators. Other packages read files and
    compute statistics, Pillow resizes images and writes JPEG: of these a machine names the versions.

    Any change gives another hash: it tells one run from the next, not one result from another.

    Parameters
    ----------
    files : iterable of pathlib.Path
        Of an experiment, as `homes` gives them.
    device : str
        "cpu" or "cuda".

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    digest = hashlib.sha256(torch.__version__.partition("+")[0].encode())
    for file in _sources(files, device):
        name = file.relative_to(_PACKAGE).as_posix() if file.is_relative_to(_PACKAGE) else file.name
        content = _source(file, file.stat().st_mtime_ns).essence if file.suffix == ".py" else file.read_bytes()
        digest.update(b"\0".join((name.encode(), content)))
    return digest.hexdigest()


def _sources(files: Iterable[Path], device: str) -> list[Path]:
    """These files, the package's modules that they import, and for a GPU the kernels beside those; sorted."""
    found: set[Path] = set()
    waiting = [_PACKAGE / file for file in files]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            imported = _source(file, file.stat().st_mtime_ns).imports
            waiting += [each for module, name in imported for each in _module(module, name) if _counts(each, device)]
    if device == "cuda":
        found |= {kernel for folder in {file.parent for file in found} for kernel in folder.glob("*.cu*")}
    return sorted(found)


def _counts(file: Path, device: str) -> bool:
    """Whether what a module does can reach a number: of what runs kernels only on a GPU, and then not the simulator."""
    parts = file.relative_to(_PACKAGE).with_suffix("").parts
    return parts[0] != "simulator" and (device == "cuda" or (parts[0] != "cuda" and parts[-1] != "kernel"))


def _module(module: str, name: str | None) -> list[Path]:
    """The file that ``from module import name`` is about, or ``import module``; none, if it is not the package's."""
    first, *parts = module.split(".")
    if first != _PACKAGE.name:
        return []
    place = _PACKAGE.joinpath(*parts)
    if name is not None:
        for below in (place / f"{name}.py", place / name / "__init__.py"):
            if _is_file(below):
                return [below]
    if not _is_file(package := place / "__init__.py"):
        return [place.with_suffix(".py")]
    passed_on = _source(package, package.stat().st_mtime_ns).passed_on
    return _module(*passed_on[name]) if name in passed_on else [package]


def _is_file(path: Path) -> bool:
    """Whether there is a file of exactly this name: to some systems, ``MLP.py`` is ``mlp.py``."""
    return path.is_file() and all(each.name in os.listdir(each.parent) for each in (path, path.parent))


class _Source(NamedTuple):
    """What counts of a module: its text, what it imports, and by name what it passes on from elsewhere."""

    essence: bytes
    imports: list[tuple[str, str | None]]
    passed_on: dict[str | None, tuple[str, str]]


@cache
def _source(file: Path, changed: int) -> _Source:
    text = file.read_text(encoding="utf-8")
    lines, tree = text.split("\n"), ast.parse(text)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    source = _Source(b"", [], {})
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            source.imports.extend((each.name, None) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            source.imports.extend((node.module, each.name) for each in node.names)
        elif isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            for row in range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1):
                lines[row - 1] = ""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            source.passed_on.update({each.asname or each.name: (node.module, each.name) for each in node.names})
    essence = "\n".join(line.rstrip() for line in lines if line.strip())
    return source._replace(essence=essence.encode())


def machine(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a job is computed on and with: versions, hardware and precision.

    Parameters
    ----------
    settings : mapping
        Of the job: its "device", "cpu" as if absent, and its "precision".

    Returns
    -------
    dict
        Keys "versions" and "hardware", as `environment` gives them, and "precision".
    """
    return {**environment(settings.get("device", "cpu")), "precision": precision(settings)}


def precision(settings: Mapping[str, Any]) -> str:
    """Return in what products of matrices are computed: "float32", or "tf32" where a GPU rounds float32 numbers to it.

    "bfloat16 and float32": a training under autocast, and the rest.

    Parameters
    ----------
    settings : mapping
        As in `machine`.

    Returns
    -------
    str
        Two numbers of one pair must have the same.

    Examples
    --------
    >>> precision({"device": "cpu"}), precision({"device": "cpu", "precision": "bfloat16"})
    ('float32', 'bfloat16 and float32')
    """
    rounded = settings.get("device", "cpu") == "cuda" and _rounds()
    plain = "tf32" if rounded else "float32"
    return f"bfloat16 and {plain}" if settings.get("precision") == "bfloat16" else plain


def _rounds() -> bool:
    """Whether this GPU takes TF32 for float32: from capability 8 on, where torch lets it (in convolutions it does)."""
    allowed = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    return allowed and torch.cuda.get_device_capability() >= (8, 0)


def environment(device: str) -> dict[str, Any]:
    """Return versions and hardware, as far as they can change a number or a time.

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
            "numpy": _version("numpy"),
            "scipy": _version("scipy"),
            "scikit-learn": _version("scikit-learn"),
            "torchvision": _version("torchvision"),
            "pillow": _version("pillow"),
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


@cache
def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@cache
def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
