"""A stand-in for CuPy, and for the GPU, on a machine that has neither: launches go to the simulator.

It is handed what CuPy is handed, a cubin's path, names, addresses and numbers, a stream, and refuses what CuPy, the
driver or the GPU would refuse or misread. Tensors lie in the processor's memory and say that they are on a GPU.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from companion.cuda import build, launch
from companion.simulator.launch import Launch
from tests.cuda.parameters import cubins, faults

CAPABILITY = (9, 0)
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
#: Shared memory of a block, unless a kernel has been allowed more.
SHARED_BYTES = 48 * 1024


class OldStream(NamedTuple):
    """torch's before 2.10."""

    cuda_stream: int


class NewStream(OldStream):
    """torch's from 2.10 on."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream


class Stream:
    """CuPy's: of a stream that speaks CUDA's protocol."""

    ptr: int

    @classmethod
    def from_external(cls, stream: Any) -> Stream:
        if not hasattr(stream, "__cuda_stream__"):
            raise TypeError(f"Object of type {type(stream).__name__} does not implement the CUDA stream protocol")
        version, handle = stream.__cuda_stream__()
        if version != 0 or not isinstance(handle, int):
            raise TypeError("__cuda_stream__() must return (0, int)")
        made = cls()
        made.ptr = handle
        return made


class Launched(NamedTuple):
    """What was asked of the GPU."""

    name: str
    device: int
    stream: int
    grid: tuple[int, ...]
    numbers: tuple[Any, ...]  # of the arguments


class StandIn:
    """The module ``cupy``, and what torch says about the GPUs.

    Parameters
    ----------
    monkeypatch : pytest.MonkeyPatch
        Puts it in place.
    new_torch : bool
        Whether torch's streams speak CUDA's protocol.
    runs : bool
        Whether launches run: otherwise they are checked and written down, and no memory is touched.
    """

    __version__ = "14"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, new_torch: bool = True, runs: bool = True) -> None:
        self.runs = runs
        self.launched: list[Launched] = []
        self.loaded: list[tuple[str, int]] = []  # source and device
        self.device, self.handle, self.capturing = 0, 0, False
        self.cuda = SimpleNamespace(Stream=Stream)
        self._sources: dict[str, Path] = {}
        self._stream = NewStream if new_torch else OldStream
        original = build.cubin

        def cubin(source: Path, arch: int) -> Path:
            path = original(source, arch)
            self._sources[str(path)] = source
            return path

        monkeypatch.setattr(build, "cubin", cubin)
        monkeypatch.setattr(launch, "cupy", lambda: self)
        for kernels in launch.all_kernels():
            monkeypatch.setattr(kernels, "_functions", {})  # loaded never before, and forgotten afterwards
        monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True))
        for name, value in {
            "is_available": lambda: True,
            "current_device": lambda: self.device,
            "current_stream": lambda index: self._stream(self.handle + 16 * index),
            "is_current_stream_capturing": lambda: self.capturing,
            "get_device_capability": lambda device=None: CAPABILITY,
            "device": self._on,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)

    @contextlib.contextmanager
    def _on(self, device: int) -> Iterator[None]:
        before, self.device = self.device, device
        try:
            yield
        finally:
            self.device = before

    def RawModule(self, *, path: str) -> RawModule:
        return RawModule(self, path)


class RawModule:
    """The kernels of a cubin, on the device that is current now."""

    def __init__(self, cupy: StandIn, path: str) -> None:
        if type(path) is not str:
            raise TypeError(f"Argument 'path' has incorrect type (expected str, got {type(path).__name__})")
        if Path(path).read_bytes()[:4] != b"\x7fELF":
            raise RuntimeError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")
        self._cupy, self._source = cupy, cupy._sources[path]
        cupy.loaded.append((self._source.name, cupy.device))

    def get_function(self, name: str) -> RawKernel:
        if name not in cubins(self._source):
            raise RuntimeError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        return RawKernel(self._cupy, self._source, name)


class RawKernel:
    """A kernel, called as CuPy's are."""

    __slots__ = ("_cupy", "_device", "_source", "name")  # other attributes are refused

    def __init__(self, cupy: StandIn, source: Path, name: str) -> None:
        self._cupy, self._source, self.name, self._device = cupy, source, name, cupy.device

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
        stream: Stream | None = None,
    ) -> None:
        if self._cupy.device != self._device:
            raise AssertionError(f"{self.name} was loaded on device {self._device}, and would be loaded once more")
        if stream is None:
            raise AssertionError(f"{self.name} would run on CuPy's own stream, beside torch's")
        grid, block = _three("grid", grid), _three("block", block)
        packed = [_packed(argument) for argument in args]
        if any(count > most for count, most in zip(grid, MOST_BLOCKS, strict=True)):
            raise AssertionError(f"{self.name} would be launched with {grid} blocks, cut to 32 bits")
        if shared_mem > SHARED_BYTES - cubins(self._source)[self.name].shared:
            raise RuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        if fault := faults(self._source, self.name, block, tuple(map(len, packed))):
            raise AssertionError(fault)
        numbers = tuple(x for x in args if isinstance(x, np.generic))
        self._cupy.launched.append(Launched(self.name, self._device, stream.ptr, grid, numbers))
        if self._cupy.runs:
            run_at_addresses(self._source, self.name, grid, block, packed, shared_mem)


def _three(what: str, given: Any) -> tuple[int, int, int]:
    if type(given) is not tuple:
        raise TypeError(f"Argument '{what}' has incorrect type (expected tuple, got {type(given).__name__})")
    x, y, z = (*given, 1, 1)[:3]
    for number in (x, y, z):
        if not hasattr(number, "__index__"):
            raise TypeError(f"{what}: an integer is required, got {type(number).__name__}")
    return max(1, int(x)), max(1, int(y)), max(1, int(z))


def _packed(argument: Any) -> bytes:
    """The bytes that CuPy points the driver to."""
    if argument is None:
        return struct.pack("q", 0)
    if type(argument) is bool:
        return struct.pack("?", argument)
    if type(argument) is int:
        return struct.pack("q" if argument < 2**63 else "Q", argument)
    if type(argument) is float:
        return struct.pack("d", argument)
    if isinstance(argument, np.generic):
        return argument.tobytes()
    raise TypeError(f"Unsupported type {type(argument)}")


def run_at_addresses(
    source: Path, name: str, grid: tuple[int, int, int], block: tuple[int, int, int], packed: list[bytes], shared: int
) -> None:
    """Run a kernel in the simulator on the memory itself, of which nothing but addresses is known."""
    kernels = next(kernels for kernels in launch.all_kernels() if kernels.source == source)
    module = kernels._simulator()
    workers = min(2, math.prod(grid))
    request = Launch(module.kernels.index(name), grid, block, shared, 0, 0, workers, tuple(packed), (), ())
    module._engine.launch(request)
