"""Who runs a launch: a library in this process, or a program with the address sanitizer in its own."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from companion.simulator.build import first_line_in, locate
from companion.simulator.launch import Launch, Span

ALIGNMENT_KEPT = 16
"""A copy of an argument is aligned like the original, modulo this: the widest access of a GPU."""


# Only one launch at a time: the handlers of the processor's faults belong to the whole process.
_one_launch = threading.Lock()


def _after_fork() -> None:
    """Another thread may have been in a launch: the child has neither that thread nor its workers, but the lock."""
    global _one_launch
    _one_launch = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class KernelFault(Exception):  # noqa: N818, it is the kernel's error, which Module turns into a SimulatorError
    """What a kernel did wrong."""


def _about(message: str, place: tuple[int, int] | None, launch: Launch) -> KernelFault:
    """Say where an address is, seen from the arguments: "…: byte 256 of argument 0, which has 256 bytes"."""
    if place is None:
        return KernelFault(message)
    number, offset = place
    size = launch.spans[number].bytes
    numbers = [str(i) for i, at in enumerate(launch.arguments) if isinstance(at, tuple) and at[0] == number]
    if len(numbers) == 1:
        return KernelFault(f"{message}: byte {offset} of argument {numbers[0]}, which has {size} bytes")
    together = f"arguments {', '.join(numbers)}, which overlap and have {size} bytes together"
    return KernelFault(f"{message}: byte {offset} of {together}")


def _nearest_span(offsets: Sequence[int], spans: Sequence[Span]) -> tuple[int, int] | None:
    """Find the span nearest to an address, given its offset from the start of each; None if far from all."""
    far = 16 * 2**20  # what runtime/regions.h guards on either side
    distances = [max(-offset, offset - span.bytes, 0) for offset, span in zip(offsets, spans, strict=True)]
    number = min(range(len(spans)), key=distances.__getitem__, default=None)
    return None if number is None or distances[number] > far else (number, offsets[number])


class Engine(ABC):
    """Runs launches of the kernels in a library or program."""

    def __init__(self, binary: Path, files: tuple[Path, ...]) -> None:
        self.binary = binary
        self.files = files

    @abstractmethod
    def signatures(self) -> str:
        """Return a line for each kernel; see :func:`companion.simulator.launch.parse_signatures`."""

    @abstractmethod
    def launch(self, launch: Launch) -> None:
        """Run it on copies of the spans, and copy the written ones back if there was no fault."""


class _LaunchRequest(ctypes.Structure):
    """LaunchRequest of runtime/launch.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("order", ctypes.c_uint),
        ("workers", ctypes.c_uint),
        ("seed", ctypes.c_uint64),
        ("shared_bytes", ctypes.c_uint64),
        ("fault_address", ctypes.c_uint64),
        ("fault_instruction", ctypes.c_uint64),
        ("fault", ctypes.c_char * 4000),
    )


class Library(Engine):
    """In this process, by a shared library."""

    _INTACT = -(2**63)

    def __init__(self, binary: Path, files: tuple[Path, ...]) -> None:
        super().__init__(binary, files)
        c = ctypes.CDLL(str(binary))
        c.simulator_signatures.restype = ctypes.c_char_p
        c.simulator_launch.restype = None
        c.simulator_launch.argtypes = (ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)
        c.simulator_region_create.restype = ctypes.c_void_p
        c.simulator_region_create.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
        c.simulator_region_data.restype = ctypes.c_void_p
        c.simulator_region_data.argtypes = (ctypes.c_void_p,)
        c.simulator_region_damage.restype = ctypes.c_ssize_t
        c.simulator_region_damage.argtypes = (ctypes.c_void_p,)
        c.simulator_region_destroy.restype = None
        c.simulator_region_destroy.argtypes = (ctypes.c_void_p,)
        self._c = c

    def signatures(self) -> str:
        text: bytes = self._c.simulator_signatures()
        return text.decode()

    def launch(self, launch: Launch) -> None:
        request = _LaunchRequest(
            launch.grid, launch.block, launch.order, launch.workers, launch.seed, launch.shared_bytes
        )
        with _one_launch, self._regions(launch.spans) as regions:
            data = [self._c.simulator_region_data(region) for region in regions]
            values = [self._value(argument, data) for argument in launch.arguments]
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
            self._c.simulator_launch(launch.kernel, ctypes.byref(request), pointers)
            if request.fault:
                raise self._fault(request, data, launch)
            for number, region in enumerate(regions):
                offset = self._c.simulator_region_damage(region)
                if offset != self._INTACT:
                    raise _about("illegal write", (number, offset), launch)
            for number in launch.written:
                span = launch.spans[number]
                ctypes.memmove(span.start, data[number], span.bytes)

    @contextmanager
    def _regions(self, spans: Sequence[Span]) -> Iterator[list[int]]:
        """Copies of the spans, each between memory that may not be touched."""
        regions: list[int] = []
        try:
            for span in spans:
                region = self._c.simulator_region_create(span.bytes, span.start % ALIGNMENT_KEPT)
                if region is None:
                    raise MemoryError(f"the simulator could not copy an argument of {span.bytes} bytes")
                regions.append(region)
                ctypes.memmove(self._c.simulator_region_data(region), span.start, span.bytes)
            yield regions
        finally:
            for region in regions:
                self._c.simulator_region_destroy(region)

    @staticmethod
    def _value(argument: bytes | tuple[int, int] | None, data: Sequence[int]) -> Any:
        """Return a C object that holds the argument; the kernel is given its address."""
        if argument is None:
            return ctypes.c_void_p(None)
        if isinstance(argument, bytes):
            return ctypes.create_string_buffer(argument, max(len(argument), 1))
        span, offset = argument
        return ctypes.c_void_p(data[span] + offset)

    def _fault(self, request: _LaunchRequest, data: Sequence[int], launch: Launch) -> KernelFault:
        message = request.fault.decode(errors="replace")
        place = None
        if request.fault_address:
            place = _nearest_span([request.fault_address - start for start in data], launch.spans)
            message += "" if place else ", far from all arguments"
        if request.fault_instruction:
            line = locate(self.binary, request.fault_instruction, self.files)
            message += f" at {line}" if line else ""
        return _about(message, place, launch)


class SanitizedProgram(Engine):
    """In a process of its own, by a program with the address sanitizer; see runtime/program.h."""

    def signatures(self) -> str:
        return self._run([]).stdout

    def launch(self, launch: Launch) -> None:
        with tempfile.TemporaryDirectory(prefix="companion-") as name:
            folder = Path(name)
            (folder / "launch.txt").write_text(self._describe(launch))
            for number, span in enumerate(launch.spans):
                (folder / f"region-{number}").write_bytes(ctypes.string_at(span.start, span.bytes))
            result = self._run([str(folder)])
            fault = folder / "fault.txt"
            if result.returncode != 0:
                raise self._fault(result, folder / "place.txt", launch)
            if fault.exists():
                raise KernelFault(fault.read_text())
            for number in launch.written:
                span = launch.spans[number]
                ctypes.memmove(span.start, (folder / f"region-{number}").read_bytes(), span.bytes)

    @staticmethod
    def _describe(launch: Launch) -> str:
        head = (launch.kernel, *launch.grid, *launch.block, launch.order, launch.workers, launch.seed)
        lines = [" ".join(map(str, (*head, launch.shared_bytes, len(launch.spans))))]
        lines += [f"{span.bytes} {span.start % ALIGNMENT_KEPT}" for span in launch.spans]
        for argument in launch.arguments:
            if argument is None:
                lines.append("null")
            elif isinstance(argument, bytes):
                lines.append(f"bytes {' '.join(map(str, argument))}")
            else:
                lines.append(f"region {argument[0]} {argument[1]}")
        return "\n".join(lines) + "\n"

    def _run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        # What the launch allocates ends with the process; only the kernel's accesses are of interest.
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}
        command = [str(self.binary), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    def _fault(self, result: subprocess.CompletedProcess[str], place: Path, launch: Launch) -> KernelFault:
        found = re.search(r"AddressSanitizer: ([\w-]+)", result.stderr)
        if found is None or not place.exists():
            return KernelFault(f"the sanitized process ended with {result.returncode}:\n{result.stderr[-2000:]}")
        thread, *offsets = place.read_text().splitlines()
        nearest = _nearest_span([int(offset) for offset in offsets], launch.spans)
        access = re.search(r"^(READ|WRITE) of size (\d+)", result.stderr, re.MULTILINE)
        if found[1] == "FPE":
            what, nearest = "integer division by zero", None
        elif found[1].startswith("stack"):
            what, nearest = f"illegal access to a local variable ({found[1]})", None
        else:
            what = f"illegal {access[1].lower()} of {access[2]} bytes" if access else "illegal access"
            what += "" if nearest else ", far from all arguments"
        line = first_line_in(self.files, result.stderr)
        return _about(f"{thread}: {what}" + (f" at {line}" if line else ""), nearest, launch)
