"""What a kernel is given agrees with its cubin: number, sizes and alignment of parameters, threads of a block.

The driver copies as many bytes as a parameter has from where an argument lies; it checks nothing. It refuses a block of
more threads than the kernel was compiled for.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

import companion
from companion.cuda.launch import Kernels
from tests.cuda.machine_code import dump

PACKAGE = Path(companion.__file__).parent
POINTER = 8
MOST_THREADS = 1024


class Cubin(NamedTuple):
    """What the cubin for sm_90 says about a kernel."""

    parameters: list[tuple[int, int]]  # offset and size of each
    threads: int  # of a block, at most: its __launch_bounds__
    shared: int  # bytes of static shared memory


@functools.cache
def cubins(source: Path) -> dict[str, Cubin]:
    """What there is about every kernel of a source."""
    shared = dict(re.findall(r"Function (\w+):.*?SHARED:(\d+)", dump(source, 90, "-res-usage"), re.DOTALL))
    info = re.compile(r"^\.nv\.info\.(\w+)\n(.*?)(?=^\.nv|\Z)", re.MULTILINE | re.DOTALL)
    found = {}
    for name, section in info.findall(dump(source, 90, "-elf")):
        entries = re.findall(r"Ordinal\s*:\s*(0x\w+)\s+Offset\s*:\s*(0x\w+)\s+Size\s*:\s*(0x\w+)", section)
        parameters = [(int(offset, 16), int(size, 16)) for _, offset, size in sorted(entries, key=_ordinal)]
        bounds = re.search(r"EIATTR_MAX_THREADS.*?(0x\w+) (0x\w+) (0x\w+)", section, re.DOTALL)
        threads = math.prod(int(bound, 16) for bound in bounds.groups()) if bounds else MOST_THREADS
        found[name] = Cubin(parameters, threads, int(shared[name]))
    return found


def _ordinal(entry: tuple[str, str, str]) -> int:
    return int(entry[0], 16)


def sizes_of(arguments: Sequence[Any]) -> tuple[int, ...]:
    """Bytes of each argument, as CuPy passes it."""
    return tuple(POINTER if x is None or isinstance(x, torch.Tensor) else int(x.nbytes) for x in arguments)


@functools.cache
def faults(source: Path, name: str, block: tuple[int, ...], sizes: tuple[int, ...]) -> str:
    """What does not agree: one sentence, empty if all does."""
    expected, threads, _ = cubins(source)[name]
    if math.prod(block) > threads:
        return f"{name} gets a block of {block} threads and has at most {threads}"
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
            assert not (fault := faults(self.source, name, block, sizes_of(arguments))), fault
        launch(self, name, grid, block, arguments, *rest, **more)

    return launch_checked
