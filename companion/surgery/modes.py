"""What the code of a network may ask torch for while it is traced: a graph has one answer of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import distributed

__all__ = ["ANSWERS", "PROCESSES", "QUESTIONS", "TRACING", "answered_otherwise"]

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


@contextlib.contextmanager
def answered_otherwise(names: Iterable[str]) -> Iterator[None]:
    """Let torch answer some of the questions as it does in the other mode."""
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(QUESTIONS[name][1]())
        yield
