"""What the compiler made of a .cu file: registers and instructions of its kernels. No GPU is needed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from companion.cuda import build

__all__ = ["Code", "machine_code"]


class Code(NamedTuple):
    """One kernel, for one architecture.

    Parameters
    ----------
    registers : int
        Of a thread.
    stack : int
        Bytes of a thread on the stack: above 0 where registers did not suffice.
    instructions : list of (int, str)
        Address and text, in order.
    """

    registers: int
    stack: int
    instructions: list[tuple[int, str]]

    def loop(self, pattern: str, least: int = 1) -> list[str]:
        """Return the shortest loop that has so many instructions that match.

        Parameters
        ----------
        pattern : str
            A regular expression.
        least : int
            How many.

        Raises
        ------
        ValueError
            If there is no such loop.
        """
        loops = []
        for address, text in self.instructions:
            back = re.search(r"BRA(?:\.\w+)* .*?(0x[0-9a-f]+)", text)
            if back and int(back[1], 16) < address:
                body = [each for at, each in self.instructions if int(back[1], 16) <= at <= address]
                if sum(re.search(pattern, each) is not None for each in body) >= least:
                    loops.append(body)
        if not loops:
            raise ValueError(f"pattern is {pattern!r} and least {least}: no loop has so many")
        return min(loops, key=len)


def machine_code(source: Path, arch: int = 90) -> dict[str, Code]:
    """Compile a source and return its kernels, by name.

    Parameters
    ----------
    source : Path
        A .cu file, as the package's own are written.
    arch : int
        The compute capability, times ten: 90 is that of an H100 or H200.

    Returns
    -------
    dict of str to Code
        Their machine code.

    Raises
    ------
    FileNotFoundError
        If NVIDIA's cuobjdump is missing.
    companion.cuda.build.CompileError
        If the compiler is missing, or finds a mistake.
    ImportError
        If what looks for NVIDIA's tools is missing.

    Examples
    --------
    >>> from companion.apa import kernel
    >>> code = machine_code(kernel.KERNELS.source)  # doctest: +SKIP
    """
    from cuda.pathfinder import find_nvidia_binary_utility

    tool = find_nvidia_binary_utility("cuobjdump")
    if tool is None:
        raise FileNotFoundError("cuobjdump is missing: pip install nvidia-cuda-cuobjdump")
    command = [tool, "-sass", "-res-usage", str(build.cubin(source, arch))]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"Function (\w+):\s+REG:(\d+) STACK:(\d+)", run.stdout + run.stderr)
    usage = {name: (int(registers), int(stack)) for name, registers, stack in found}
    code = {}
    for part in run.stdout.split("Function : ")[1:]:
        name = part.split()[0]
        instructions = [(int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", part)]
        code[name] = Code(*usage[name], instructions)
    return code
