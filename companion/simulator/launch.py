"""A launch before it runs: what a kernel takes, what it was given, and whether the two agree."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from companion.arguments import check_memory, is_number

# Limits of a launch: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Dynamic
# shared memory: that of 9.0, the largest.
MOST_THREADS_PER_BLOCK = 1024
MOST_THREADS = (1024, 1024, 64)
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
MOST_SHARED_BYTES = 227 * 1024

_ORDERS = ("natural", "reversed", "shuffled", "warps")
_KINDS = {"f": "floating-point", "i": "integer", "b": "boolean", "s": "structure"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel, as the compiler sees it."""

    pointer: bool
    kind: str  # of the value or of what the pointer points to: f, i, b, s (structure), v (void)
    bytes: int
    constant: bool

    def __str__(self) -> str:
        what = f"{_KINDS[self.kind]} of {self.bytes} bytes" if self.kind in _KINDS else "anything"
        return f"a pointer to {what}" if self.pointer else what


@dataclass
class Span:
    """A piece of memory that arguments lie in. Arguments that overlap share one."""

    start: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Launch:
    """A checked launch. Of an argument: bytes of a value, or (span, offset), or None for a null pointer."""

    kernel: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    order: int
    seed: int
    workers: int
    arguments: tuple[bytes | tuple[int, int] | None, ...]
    spans: tuple[Span, ...]
    written: tuple[int, ...]  # spans that a pointer to mutable data leads to


def parse_signatures(text: str) -> dict[str, tuple[Parameter, ...]]:
    """Read what the C++ side says about its kernels: ``block_sum pointer:f:4:constant value:i:4:mutable``."""
    signatures = {}
    for line in text.splitlines():
        name, *parameters = line.split(" ")
        signatures[name] = tuple(
            Parameter(what == "pointer", kind, int(size), constant == "constant")
            for what, kind, size, constant in (parameter.split(":") for parameter in parameters)
        )
    return signatures


def check_launch(
    kernels: Sequence[str],
    signatures: Mapping[str, Sequence[Parameter]],
    name: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    args: Sequence[Any],
    shared_bytes: int,
    order: str | None,
) -> Launch:
    """Check what :meth:`companion.simulator.Module.launch` was given, and bring it into the form that runs.

    Raises
    ------
    TypeError, ValueError
        With the name of what is wrong, what came and what is allowed.
    """
    if name not in signatures:
        raise ValueError(f"name: got {name!r}, allowed are {', '.join(map(repr, kernels))}")
    order_number, seed = _parse_order(order)
    grid_3d, block_3d = _dimensions("grid", grid, MOST_BLOCKS), _dimensions("block", block, MOST_THREADS)
    threads = block_3d[0] * block_3d[1] * block_3d[2]
    if threads > MOST_THREADS_PER_BLOCK:
        raise ValueError(f"block: got {block}, {threads} threads; allowed are {MOST_THREADS_PER_BLOCK}")
    if not 0 <= shared_bytes <= MOST_SHARED_BYTES:
        raise ValueError(f"shared_bytes: got {shared_bytes}, allowed are 0 to {MOST_SHARED_BYTES}")
    parameters = signatures[name]
    _check_arguments(name, parameters, args)
    spans = _merge_spans([_span(argument) for argument in args if isinstance(argument, torch.Tensor)])
    arguments = tuple(_place(argument, spans) for argument in args)
    written = {
        place[0]
        for place, parameter in zip(arguments, parameters, strict=True)
        if isinstance(place, tuple) and not parameter.constant
    }
    return Launch(
        kernel=kernels.index(name),
        grid=grid_3d,
        block=block_3d,
        shared_bytes=shared_bytes,
        order=order_number,
        seed=seed,
        workers=min(_worker_count(), grid_3d[0] * grid_3d[1] * grid_3d[2]),
        arguments=arguments,
        spans=tuple(spans),
        written=tuple(sorted(written)),
    )


def _parse_order(order: str | None) -> tuple[int, int]:
    text = order if order is not None else os.environ.get("COMPANION_SIMULATOR_ORDER", "natural")
    name, _, seed = text.partition(":")
    if name not in _ORDERS or (seed and (name != "shuffled" or not seed.isdecimal())):
        source = "order" if order is not None else "COMPANION_SIMULATOR_ORDER"
        raise ValueError(f"{source}: got {text!r}, allowed are {', '.join(map(repr, _ORDERS))}, 'shuffled:SEED'")
    return _ORDERS.index(name), int(seed or 0)


def _worker_count() -> int:
    text = os.environ.get("COMPANION_SIMULATOR_THREADS", "")
    if text and (not text.isdecimal() or int(text) == 0):
        raise ValueError(f"COMPANION_SIMULATOR_THREADS: got {text!r}, allowed is a positive number")
    return int(text) if text else os.cpu_count() or 1


def _dimensions(what: str, given: tuple[int, ...], most: tuple[int, int, int]) -> tuple[int, int, int]:
    if not isinstance(given, tuple) or not 1 <= len(given) <= 3:
        raise TypeError(f"{what}: got {given!r}, allowed is a tuple of one to three numbers")
    filled = (*given, *(1,) * (3 - len(given)))
    if any(not 1 <= n <= limit for n, limit in zip(filled, most, strict=True)):
        raise ValueError(f"{what}: got {given}, allowed are 1 to {most}")
    return (int(filled[0]), int(filled[1]), int(filled[2]))


def _check_arguments(name: str, parameters: Sequence[Parameter], args: Sequence[Any]) -> None:
    if len(args) != len(parameters):
        raise TypeError(f"args: got {len(args)}, kernel {name} takes {len(parameters)}")
    for number, (parameter, argument) in enumerate(zip(parameters, args, strict=True)):
        if parameter.pointer:
            _check_pointer(f"args[{number}]", parameter, argument)
        else:
            _check_value(f"args[{number}]", parameter, argument)


def _check_pointer(where: str, parameter: Parameter, argument: Any) -> None:
    if argument is None:
        return
    if not isinstance(argument, torch.Tensor):
        given = type(argument).__name__
        raise TypeError(f"{where}: got {given}, allowed for a pointer is a torch.Tensor or None")
    check_memory(where, argument, argument.device.type == "cpu", "the CPU")
    if argument.dtype != torch.uint8 and parameter.kind in "fib":  # uint8: memory for anything
        kind = "f" if argument.is_floating_point() else "b" if argument.dtype == torch.bool else "i"
        if (kind, argument.element_size()) != (parameter.kind, parameter.bytes):
            raise TypeError(f"{where}: got a tensor of {argument.dtype}, the kernel takes {parameter}")


def _check_value(where: str, parameter: Parameter, argument: Any) -> None:
    if not is_number(argument):
        given = type(argument).__name__
        raise TypeError(f"{where}: got {given}, allowed is a NumPy scalar such as numpy.int32(3): {parameter}")
    kind = {"i": "i", "u": "i", "f": "f", "b": "b"}.get(argument.dtype.kind, "s")
    if (kind, argument.nbytes) != (parameter.kind, parameter.bytes):
        raise TypeError(f"{where}: got {type(argument).__name__}, the kernel takes {parameter}")


def _span(tensor: torch.Tensor) -> Span:
    return Span(tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size())


def _merge_spans(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        if merged and span.start < merged[-1].end:
            merged[-1].end = max(merged[-1].end, span.end)
        elif not merged or (span.start, span.end) != (merged[-1].start, merged[-1].end):
            merged.append(Span(span.start, span.end))
    return merged


def _place(argument: Any, spans: Sequence[Span]) -> bytes | tuple[int, int] | None:
    if argument is None:
        return None
    if not isinstance(argument, torch.Tensor):
        return bytes(argument.tobytes())
    mine = _span(argument)
    for number, span in enumerate(spans):
        if span.start <= mine.start and mine.end <= span.end:
            return number, mine.start - span.start
    raise AssertionError("every argument lies in a span")
