"""What the compiler made of a .cu file, for tests: on any machine, and skipped where a tool is missing."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from companion.cuda import build
from companion.study import machine_code as study

ARCHITECTURES = [75, 80, 90, 100, 120]
#: Numbers of instructions and registers are those of one compiler: the one in requirements.lock.
LOCKED_NVRTC = (13, 2)


class Code(study.Code):
    """One kernel, as the tests ask about it."""

    @property
    def spills(self) -> bool:
        """Whether registers lie on the stack, or go to local memory and come back."""
        return self.stack != 0 or self.count(r"^(@!?U?P\d )?(LDL|STL)") > 0

    def count(self, pattern: str) -> int:
        """How many instructions match."""
        return sum(re.search(pattern, text) is not None for _, text in self.instructions)

    def loop_over_packs(self) -> list[str]:
        """The innermost loop that holds an access of 16 bytes."""
        return self.loop(r"\.128")

    def straight_runs(self) -> list[list[str]]:
        """The basic blocks: what runs from one branch or target of a branch to the next."""
        jump = re.compile(r"\b(?:BRA|BSSY|CALL)\b.*?(0x[0-9a-f]+)")
        targets = {int(found[1], 16) for _, text in self.instructions if (found := jump.search(text))}
        runs: list[list[str]] = [[]]
        for address, text in self.instructions:
            if address in targets:
                runs.append([])
            runs[-1].append(text)
            if re.match(r"(@!?U?P\w+ )?(BRA|EXIT|RET|BSYNC|CALL)", text):
                runs.append([])
        return [run for run in runs if run]


def tool(name: str) -> str:
    """NVIDIA's binary tool of this name, from its wheel; without it the test is skipped."""
    return find_tool(name) or pytest.skip(f"needs {name}: pip install nvidia-cuda-{name}")


def find_tool(name: str) -> str | None:
    """The same, or None."""
    namespace = importlib.util.find_spec("nvidia")
    for place in (namespace.submodule_search_locations or ()) if namespace else ():
        for path in Path(place).glob(f"cu[0-9]*/bin/{name}"):
            return str(path)
    return None


def under_the_locked_compiler() -> None:
    """Skip where numbers may be others."""
    if build.compiler_version() != LOCKED_NVRTC:
        found, locked = (".".join(map(str, version)) for version in (build.compiler_version(), LOCKED_NVRTC))
        pytest.skip(f"NVRTC is {found}; the numbers hold for {locked}")


@contextlib.contextmanager
def missing_compiler() -> Iterator[None]:
    """Skip where NVRTC is not installed."""
    try:
        yield
    except build.CompileError as error:
        if "could not be loaded" in str(error):
            pytest.skip(str(error))
        raise


def dump(source: Path, arch: int, option: str) -> str:
    """What cuobjdump prints of a source that is compiled for one architecture."""
    with missing_compiler():
        path = build.cubin(source, arch)
    result = subprocess.run([tool("cuobjdump"), option, str(path)], capture_output=True, text=True, check=True)
    return result.stdout + result.stderr


def usage(source: Path, arch: int) -> dict[str, tuple[int, int, int]]:
    """Registers and bytes on the stack and in local memory of all kernels of a source, which takes milliseconds."""
    found = {}
    for name, text in re.findall(r"Function (\w+):\s*\n\s*(.*)", dump(source, arch, "-res-usage")):
        numbers = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", text))
        found[name] = (int(numbers["REG"]), int(numbers["STACK"]), int(numbers["LOCAL"]))
    return found


@functools.cache
def machine_code(source: Path, arch: int) -> dict[str, Code]:
    """All kernels of a source for one architecture, which takes seconds."""
    tool("cuobjdump")
    with missing_compiler():
        return {name: Code(*code) for name, code in study.machine_code(source, arch).items()}
