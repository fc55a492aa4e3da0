"""``python -m companion.doctor``: what is installed, what works, what is proved, and what mends the rest.

It prints text that can be pasted into a report: no path, no name of a machine or a user. It changes nothing.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterator

import torch

import companion
from companion import simulator
from companion.cuda import build, launch
from companion.operators import operators
from companion.proofs import verdicts

_PACKAGES = ("numpy", "torchvision", "triton", "sympy", "matplotlib", "cupy-cuda12x", "cupy-cuda13x")


def report() -> str:
    """All that the doctor finds, one line each."""
    sections = {"Installed": _installed(), "Works": _works(), "Proved": _proved()}
    return "\n".join(f"{title}\n" + "\n".join(f"  {line}" for line in lines) for title, lines in sections.items())


def _installed() -> Iterator[str]:
    yield f"companion {companion.__version__}, Python {platform.python_version()}"
    yield f"{sys.platform} on {platform.machine()}"
    yield f"torch {torch.__version__}, built for {build.torchs_platform()}"
    found = {name: _version(name) for name in _PACKAGES}
    yield ", ".join(f"{name} {version}" for name, version in found.items() if version) or "nothing else that matters"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _works() -> Iterator[str]:
    if torch.cuda.is_available():
        yield f"GPU: {verdicts.gpu_name('cuda')}, driver {verdicts.driver()}"
    else:
        yield "GPU: none that torch can use; plain torch computes"
    for what, works in (("CuPy", _cupy), ("NVRTC", _nvrtc)):
        try:
            yield f"{what}: {works()}"
        except Exception as error:  # whatever is broken is to be named; our own words about it name a remedy, too
            yield f"{what}: not usable ({_short(error.__cause__ or error)}); {build.what_installs_it()}"
    reason = simulator.why_not()
    yield f"simulator: {'works' if reason is None else _short(reason)}"


def _cupy() -> str:
    return str(launch.cupy().__version__)


def _nvrtc() -> str:
    return ".".join(map(str, build.compiler_version()))


def _short(message: object) -> str:
    return " ".join(str(message).split())[:300]


def _proved() -> Iterator[str]:
    if not torch.cuda.is_available():
        yield "nothing: there is no GPU on which a kernel could prove itself"
        return
    for operator in operators():
        for index in range(torch.cuda.device_count()):
            try:
                verdict = verdicts.kept(operator, f"cuda:{index}")
            except build.CompileError as error:
                yield f"{operator.name}: not possible ({_short(error)})"
                continue
            except PermissionError as error:  # its message names a folder
                yield f"{operator.name}: not possible ({verdicts.one_line(str(error))})"
                continue
            if verdict is None:
                said = 'not yet; python -c "import companion; companion.warmup()"'
            else:
                said = f"yes, in {verdict.seconds:g} s" if verdict.holds else f"NO: {verdict.said}"
            yield f"{operator.name} on {verdicts.gpu_name(f'cuda:{index}')}: {said}"


if __name__ == "__main__":
    print(report())
