"""What the code of a network may ask torch for while it is traced: a graph has one answer of it."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed

__all__ = ["ANSWERS", "PROCESSES", "QUESTIONS", "TRACING", "answered_otherwise", "nothing_is_drawn", "undisturbed"]

#: Held by who traces: torch.fx changes nn.Module for all threads, and `companion.dac.tracing` modules of the network.
TRACING = threading.RLock()


@contextlib.contextmanager
def _autocast_otherwise(device: str) -> Iterator[None]:
    was = torch.is_autocast_enabled(device)
    torch.set_autocast_enabled(device, not was)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, was)


@contextlib.contextmanager
def _inference_otherwise() -> Iterator[None]:
    gradients = torch.is_grad_enabled()
    with torch.inference_mode(not torch.is_inference_mode_enabled()), torch.set_grad_enabled(gradients):
        yield


_Question = tuple[Callable[[], bool], Callable[[], contextlib.AbstractContextManager[object]]]

#: By what is asked for: the answer, and a context in which it is the other one.
QUESTIONS: dict[str, _Question] = {
    "inference mode": (torch.is_inference_mode_enabled, _inference_otherwise),
    "gradients": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(not torch.is_grad_enabled())),
    "autocast on CPUs": (lambda: torch.is_autocast_enabled("cpu"), lambda: _autocast_otherwise("cpu")),
    "autocast on CUDA": (lambda: torch.is_autocast_enabled("cuda"), lambda: _autocast_otherwise("cuda")),
}

#: What the code of a network may ask by ``is_initialized``: nobody can answer it otherwise for one thread alone.
PROCESSES = "torch.distributed"

#: By what is asked for, the answer.
ANSWERS: dict[str, Callable[[], bool]] = {
    **{name: answer for name, (answer, _) in QUESTIONS.items()},
    PROCESSES: lambda: distributed.is_available() and distributed.is_initialized(),
}


def _random_states() -> tuple[Tensor, tuple[Any, ...]]:
    return torch.get_rng_state(), random.getstate()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Whatever is drawn inside, the generators are as before; also a decorator."""
    of_torch, of_python = _random_states()
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)


@contextlib.contextmanager
def nothing_is_drawn() -> Iterator[None]:
    """Who draws a random number while a graph is made, gets it built in.

    Raises
    ------
    ValueError
        If somebody does.
    """
    of_torch, of_python = _random_states()
    yield
    later, other = _random_states()
    if not torch.equal(of_torch, later) or of_python != other:
        raise ValueError("it draws a random number, which would be built in")


@contextlib.contextmanager
def answered_otherwise(names: Iterable[str]) -> Iterator[None]:
    """Let torch answer some of the questions as it does in the other mode."""
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(QUESTIONS[name][1]())
        yield
