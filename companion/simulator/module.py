"""The kernels of a .cu file, launched on the CPU with arguments as CuPy would be given them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from companion.simulator.build import build
from companion.simulator.engines import Engine, KernelFault, Library, SanitizedProgram
from companion.simulator.errors import SimulatorError
from companion.simulator.launch import check_launch, parse_signatures


class Module:
    """The kernels of one .cu file, ready to run on the CPU. Made by :func:`load`.

    Parameters
    ----------
    source
        The .cu file.
    kernels
        Names of its ``extern "C" __global__`` functions.
    include
        Directories in which ``#include`` looks.
    sanitize
        Whether to run every launch in a process with the address sanitizer.
    """

    def __init__(
        self,
        source: str | Path,
        kernels: Sequence[str],
        include: Sequence[str | Path] = (),
        sanitize: bool = False,
    ) -> None:
        self.source = Path(source)
        if not self.source.is_file():
            raise FileNotFoundError(f"source: got {self.source}, which is no file")
        if isinstance(kernels, str) or not kernels:
            raise TypeError(f"kernels: got {kernels!r}, allowed is a sequence of at least one name")
        for name in kernels:
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise ValueError(f"kernels: got {name!r}, allowed are names of functions")
        self.kernels = tuple(kernels)
        binary, files = build(self.source, self.kernels, [Path(folder) for folder in include], sanitize)
        self._engine: Engine = (SanitizedProgram if sanitize else Library)(binary, files)
        self._signatures = parse_signatures(self._engine.signatures())

    def __repr__(self) -> str:
        return f"simulator.Module({self.source.name!r}, kernels={self.kernels})"

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Any],
        shared_bytes: int = 0,
        *,
        order: str | None = None,
    ) -> None:
        """Run a kernel and wait for it. If it fails, the tensors are left as they were.

        Parameters
        ----------
        name : str
            The kernel.
        grid, block : tuple of int
            One to three dimensions each.
        args : sequence
            For a pointer: a CPU tensor without gaps, or None for a null pointer. For a value: a NumPy scalar
            of exactly the parameter's size and kind, such as ``numpy.int32(3)``. A tensor of uint8 goes to a
            pointer of any type.
        shared_bytes : int
            Size of the dynamic shared memory, ``extern __shared__``.
        order : {"natural", "reversed", "shuffled", "shuffled:SEED", "warps"}, optional
            In which order the threads of a block take their turns: each until it waits, or with "warps" one warp
            after the other until a barrier of the block holds it. If not natural, blocks begin with the last. By
            default $COMPANION_SIMULATOR_ORDER, or else natural.

        Raises
        ------
        SimulatorError
            If the kernel does something that it must not do. The message names block, thread and line.
        TypeError, ValueError
            If the launch itself is wrong.

        Notes
        -----
        Blocks are spread over $COMPANION_SIMULATOR_THREADS threads of the operating system, by default as
        many as there are processors. The kernel works on copies of the tensors, which lie between memory
        that may not be touched. So an access beyond an argument is found, but for reads of up to a page
        before it or, where alignment leaves a gap, up to 15 bytes behind it: these give NaN.
        ``load(..., sanitize=True)`` finds them as well.
        """
        launch = check_launch(self.kernels, self._signatures, name, grid, block, args, shared_bytes, order)
        try:
            self._engine.launch(launch)
        except KernelFault as fault:
            raise SimulatorError(f"{self.source.name}, kernel {name}, {fault}") from None


def load(
    source: str | Path, kernels: Sequence[str], *, include: Sequence[str | Path] = (), sanitize: bool = False
) -> Module:
    """Compile the kernels of a .cu file for the CPU, or find them compiled.

    Parameters
    ----------
    source : str or Path
        The .cu file.
    kernels : sequence of str
        Names of its ``extern "C" __global__`` functions.
    include : sequence of str or Path
        Directories in which ``#include`` looks, after the file's own.
    sanitize : bool
        Run every launch in a process of its own under the address sanitizer. It finds every access beyond an
        argument and names the line; a launch takes tens of milliseconds more, and the kernel is slower.

    Returns
    -------
    Module

    Raises
    ------
    SimulatorError
        If :func:`why_not` has a reason, or if the compiler refuses the source.

    Examples
    --------
    >>> import pathlib, tempfile, torch
    >>> from companion import simulator
    >>> source = pathlib.Path(tempfile.mkdtemp()) / "reverse.cu"
    >>> _ = source.write_text('''
    ... extern "C" __global__ void reverse(float* x) {
    ...     __shared__ float tile[64];
    ...     tile[threadIdx.x] = x[threadIdx.x];
    ...     __syncthreads();
    ...     x[threadIdx.x] = tile[63 - threadIdx.x];
    ... }''')
    >>> module = simulator.load(source, ["reverse"])
    >>> x = torch.arange(64.0)
    >>> module.launch("reverse", (1,), (64,), [x])
    >>> x[:3].tolist()
    [63.0, 62.0, 61.0]
    """
    return Module(source, kernels, include, sanitize)


def check_orders(
    module: Module,
    name: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    make_args: Callable[[], Sequence[Any]],
    shared_bytes: int = 0,
) -> None:
    """Run a kernel with its threads in several orders and demand the same result, bit for bit.

    A missing barrier shows here: whoever comes first then reads what is not yet written. So does a sum whose
    order is left to chance, by floating-point atomics for instance.

    Parameters
    ----------
    module, name, grid, block, shared_bytes
        As for :meth:`Module.launch`.
    make_args : callable
        Returns the arguments, new ones at each call and always the same values.

    Raises
    ------
    SimulatorError
        If two orders disagree; it names the argument and the element.
    """
    reference: list[torch.Tensor] | None = None
    for order in ("natural", "reversed", "shuffled:1", "shuffled:2", "warps"):
        args = make_args()
        module.launch(name, grid, block, args, shared_bytes, order=order)
        results = [argument for argument in args if isinstance(argument, torch.Tensor)]
        numbers = [i for i, argument in enumerate(args) if isinstance(argument, torch.Tensor)]
        if reference is None:
            reference = results
            continue
        for number, expected, result in zip(numbers, reference, results, strict=True):
            element = _first_difference(expected, result)
            if element is not None:
                raise SimulatorError(
                    f"{module.source.name}, kernel {name}: the result depends on the order in which threads "
                    f"run; a barrier may be missing. Element {element} of argument {number} is "
                    f"{expected.reshape(-1)[element].item()} in natural order and "
                    f"{result.reshape(-1)[element].item()} with threads {order}."
                )


def _first_difference(a: torch.Tensor, b: torch.Tensor) -> int | None:
    def bits(x: torch.Tensor) -> torch.Tensor:
        return x.detach().contiguous().reshape(-1).view(torch.uint8).reshape(x.numel(), x.element_size())

    different = (bits(a) != bits(b)).any(dim=1).nonzero()
    return int(different[0]) if len(different) else None
