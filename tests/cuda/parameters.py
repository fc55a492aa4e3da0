"""What a kernel is given agrees with the parameters that its cubin has: their number, sizes and alignment.

CuPy copies as many bytes as an argument has to where the cubin says that a parameter lies; it checks nothing.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import companion
from companion.cuda import build
from companion.cuda.launch import Kernels
from tests.cuda.machine_code import tool

PACKAGE = Path(companion.__file__).parent
POINTER = 8


@functools.cache
def parameters(source: Path) -> dict[str, list[tuple[int, int]]]:
    """Offset and size of every parameter of every kernel of a source, from the cubin for sm_90."""
    dump = [tool("cuobjdump"), "-elf", str(build.cubin(source, 90))]
    text = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    found: dict[str, list[tuple[int, int]]] = {}
    for name, section in re.findall(r"^\.nv\.info\.(\w+)\n(.*?)(?=^\.nv|\Z)", text, re.MULTILINE | re.DOTALL):
        entries = re.findall(r"Ordinal\s*:\s*(0x\w+)\s+Offset\s*:\s*(0x\w+)\s+Size\s*:\s*(0x\w+)", section)
        found[name] = [(int(offset, 16), int(size, 16)) for _, offset, size in sorted(entries, key=_ordinal)]
    return found


def _ordinal(entry: tuple[str, str, str]) -> int:
    return int(entry[0], 16)


def sizes_of(arguments: Sequence[Any]) -> tuple[int, ...]:
    """Bytes of each argument, as CuPy passes it."""
    return tuple(POINTER if x is None or isinstance(x, torch.Tensor) else int(x.nbytes) for x in arguments)


@functools.cache
def faults(source: Path, name: str, sizes: tuple[int, ...]) -> str:
    """What does not agree: one sentence, empty if all does."""
    expected = parameters(source)[name]
    if len(sizes) != len(expected):
        return f"{name} gets {len(sizes)} arguments and has {len(expected)} parameters"
    end = 0
    for place, (given, (offset, size)) in enumerate(zip(sizes, expected, strict=True)):
        if given != size:
            return f"{name}: argument {place} has {given} bytes, the parameter {size}"
        end = -(-end // given) * given  # as C++ aligns a parameter of this size
        if end != offset:
            return f"{name}: argument {place} would lie at byte {end}, the parameter lies at {offset}"
        end += given
    return ""


def checked(launch: Callable[..., None]) -> Callable[..., None]:
    """``Kernels.launch`` that compares first, for the package's own sources."""

    def launch_checked(
        self: Kernels, name: str, grid: Any, block: Any, arguments: Any, *rest: Any, **more: Any
    ) -> None:
        if PACKAGE in self.source.parents:
            assert not (fault := faults(self.source, name, sizes_of(arguments))), fault
        launch(self, name, grid, block, arguments, *rest, **more)

    return launch_checked
