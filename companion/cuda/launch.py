"""Launch compiled kernels: on a GPU through CuPy, on a CPU through the simulator. One call for both."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from companion.arguments import check_memory, is_number
from companion.cuda import build
from companion.files import cache_directory, keep

_kernels: list[Kernels] = []

#: A kernel is given a tensor or None for a pointer, and a NumPy scalar of the parameter's type for a number.
Arguments = Sequence[Any]

#: Blocks of a grid at most, along x, y and z. Of a larger number CuPy takes the lower 32 bits, without a word.
MOST_BLOCKS = (2**31 - 1, 65535, 65535)

_KERNEL = re.compile(r'\bextern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(')


class Kernels:
    """The kernels of one .cu file.

    Parameters
    ----------
    source : Path
        The file.
    names : sequence of str
        Its ``extern "C"`` kernels.
    lowest : int
        Compute capability times ten from which on they are launched; below it something else computes.

    Notes
    -----
    Nothing is compiled or imported before the first launch. On a GPU the cubin is compiled by NVRTC (seconds, once
    per machine and architecture, then cached) and loaded through CuPy (once per process and device).
    """

    def __init__(self, source: Path, names: Sequence[str], lowest: int = 75) -> None:
        self.source = source
        self.names = tuple(names)
        self.lowest = lowest
        self._functions: dict[int, dict[str, Any]] = {}
        _kernels.append(self)

    @classmethod
    def from_text(cls, text: str, name: str = "kernel.cu") -> Kernels:
        """The kernels of a source that is given as text, in a notebook for instance.

        Parameters
        ----------
        text : str
            CUDA C++. Every ``extern "C" __global__ void`` function in it is a kernel.
        name : str
            What messages call the source, such as ``"scale.cu"``.

        Returns
        -------
        Kernels
            Their source is a file in :func:`~companion.files.cache_directory`, the same for the same text.

        Raises
        ------
        ValueError
            If the text holds no kernel, or the name is not the name of a .cu file.
        PermissionError
            If somebody else can change what lies in the cache.

        Examples
        --------
        >>> from companion.cuda.launch import Kernels
        >>> Kernels.from_text('extern "C" __global__ void halve(float* x) { x[threadIdx.x] /= 2; }').names
        ('halve',)
        """
        if not re.fullmatch(r"\w[\w.-]*\.cu", name):
            raise ValueError(f"name: got {name!r}, allowed is the name of a .cu file, without a folder")
        names = _KERNEL.findall(text)
        if not names:
            raise ValueError('text: got a source without a kernel, that is a function extern "C" __global__ void')
        content = text.encode()
        key = f"{name}-{hashlib.sha256(content).hexdigest()[:20]}"
        return cls(keep(cache_directory("source"), key, name, lambda path: path.write_bytes(content)), names)

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: Arguments,
        device: torch.device,
        simulated: bool = False,
    ) -> None:
        """Launch on ``device``'s current stream; simulated, run on the CPU and return when done.

        Raises
        ------
        RuntimeError
            If CuPy is missing, or a kernel that was never loaded meets the capture of a CUDA graph.
        TypeError, ValueError
            If there are more blocks than a GPU takes, or an argument is neither None, nor a tensor on ``device``
            without gaps, nor a NumPy scalar. The simulator also compares them with the kernel's parameters.
        CompileError, SimulatorError
            If the source cannot be compiled.
        """
        if simulated:
            self._simulator().launch(name, grid, block, arguments)
            return
        if any(count > most for count, most in zip(grid, MOST_BLOCKS, strict=False)):
            raise ValueError(f"{name}: got tensors for {grid} blocks, allowed are {MOST_BLOCKS[: len(grid)]}")
        index = device.index if device.index is not None else torch.cuda.current_device()
        pointers = [_pointer_or_number(number, a, index) for number, a in enumerate(arguments)]
        functions = self._functions.get(index) or self.load(index)
        stream = torch.cuda.current_stream(index)
        if index == torch.cuda.current_device():
            functions[name](grid, block, pointers, stream=_stream(stream))
        else:
            with torch.cuda.device(index):
                functions[name](grid, block, pointers, stream=_stream(stream))

    def load(self, index: int) -> dict[str, Any]:
        """Compile for the GPU of this index and load there, once; return the functions by name.

        Raises
        ------
        RuntimeError
            If CuPy is missing, or a CUDA graph is being captured.
        """
        if index in self._functions:
            return self._functions[index]
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"{self.source.name} is not loaded yet, and loading is not allowed while a CUDA graph is captured; "
                "launch it once before the capture, as companion.warmup() does for the operators"
            )
        raw_module = cupy().RawModule
        with torch.cuda.device(index):
            major, minor = torch.cuda.get_device_capability(index)
            module = raw_module(path=str(build.cubin(self.source, 10 * major + minor)))
            functions = {name: module.get_function(name) for name in self.names}
        self._functions[index] = functions
        return functions

    @functools.cache  # noqa: B019 - a handful of Kernels live as long as the process
    def _simulator(self) -> Any:
        from companion import simulator

        return simulator.load(self.source, self.names, include=(build.INCLUDE,))


def _pointer_or_number(number: int, argument: Any, index: int) -> Any:
    """An argument as CuPy hands it on, unseen, to a kernel on the GPU of this index."""
    if isinstance(argument, Tensor):
        there = argument.is_cuda and argument.device.index in (None, index)
        check_memory(f"args[{number}]", argument, there, f"cuda:{index}")
        return argument.data_ptr()
    if argument is not None and not is_number(argument):
        raise TypeError(
            f"args[{number}]: got {type(argument).__name__}, allowed is a torch.Tensor, None or a NumPy scalar such as "
            "numpy.int32(3)"
        )
    return 0 if argument is None else argument


def all_kernels() -> list[Kernels]:
    """Every source whose kernels somebody has declared."""
    return list(_kernels)


@functools.cache
def cupy() -> Any:
    """CuPy, imported when it is needed.

    Raises
    ------
    RuntimeError
        If it is missing; the message says what to install.
    """
    try:
        import cupy
    except ImportError as error:
        raise RuntimeError(
            "the kernel backend needs CuPy; install one of cupy-cuda12x and cupy-cuda13x, whichever has the CUDA "
            'version of your torch, or use companion.backend("torch")'
        ) from error
    return cupy


class _Stream(NamedTuple):
    """A stream in CUDA's protocol, which torch's own streams speak from torch 2.10 on. CuPy's ExternalStream, which
    needs no protocol, is deprecated since CuPy 14 and says so at every launch."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _stream(stream: torch.cuda.Stream) -> Any:
    """torch's stream as CuPy's: taken at every launch, because the current stream belongs to the thread."""
    return cupy().cuda.Stream.from_external(_Stream(stream.cuda_stream))
