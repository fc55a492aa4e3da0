"""What the compiler made of a .cu file: registers, spills and instructions of its kernels, on any machine."""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from companion.cuda import build

ARCHITECTURES = [75, 80, 90, 100, 120]
#: Numbers of instructions and registers are those of one compiler: the one in requirements.lock.
LOCKED_NVRTC = (13, 2)


class Code(NamedTuple):
    """What cuobjdump says about one kernel."""

    registers: int
    stack: int
    local: int
    instructions: list[tuple[int, str]]  # address, text

    @property
    def spills(self) -> bool:
        """Whether registers lie on the stack or in local memory, or come back by LDL."""
        moved = any(re.match(r"(@!?U?P\d )?(LDL|STL)", text) for _, text in self.instructions)
        return moved or (self.stack, self.local) != (0, 0)

    def count(self, pattern: str) -> int:
        """How many instructions match."""
        return sum(re.search(pattern, text) is not None for _, text in self.instructions)

    def loop_over_packs(self) -> list[str]:
        """The innermost loop that holds an access of 16 bytes."""
        loops = []
        for address, text in self.instructions:
            target = re.search(r"BRA(?:\.\w+)* .*?(0x[0-9a-f]+)", text)
            if target and int(target[1], 16) < address:
                body = [text for at, text in self.instructions if int(target[1], 16) <= at <= address]
                if any(".128" in text for text in body):
                    loops.append(body)
        return min(loops, key=len)

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


def dump(source: Path, arch: int, option: str) -> str:
    """What cuobjdump prints of a source that is compiled for one architecture."""
    try:
        path = build.cubin(source, arch)
    except build.CompileError as error:
        if "could not be loaded" in str(error):
            pytest.skip(str(error))
        raise
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
    instructions: dict[str, list[tuple[int, str]]] = {}
    name = ""
    for line in dump(source, arch, "-sass").splitlines():
        if function := re.search(r"Function : (\w+)", line):
            name = function[1]
            instructions[name] = []
        elif instruction := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", line):
            instructions[name].append((int(instruction[1], 16), instruction[2]))
    return {name: Code(*numbers, instructions[name]) for name, numbers in usage(source, arch).items()}
