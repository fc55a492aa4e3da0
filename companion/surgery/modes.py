"""What the code of a network may ask torch for while it is traced: a graph has one answer of it."""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import distributed
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["ANSWERS", "PROCESSES", "QUESTIONS", "TRACING", "answered_otherwise", "nothing_is_drawn"]

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


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes whether a random number of torch's is drawn."""

    def __init__(self, ignored: Callable[[], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ignored, self.noted, self.by_others = ignored, False, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take a call of an operator."""
        self.noted |= torch.Tag.nondeterministic_seeded in func.tags and not self.ignored()
        return func(*args, **(kwargs or {}))


#: What Python's generator, which all threads have in common, is asked by.
_DRAWING = [
    name
    for name in random.__all__
    if hasattr(getattr(random, name), "__self__") and name not in ("seed", "getstate", "setstate")
]


def _states() -> dict[str, Any]:
    """The states of the generators of Python and, if it is there, of NumPy."""
    states: dict[str, Any] = {"random": random.getstate()}
    if numpy := sys.modules.get("numpy.random"):
        states["numpy"] = pickle.dumps(numpy.get_state(legacy=False))
    return states


@contextlib.contextmanager
def nothing_is_drawn(ignored: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Who draws a random number while a graph is made, gets it built in. What other threads draw is theirs.

    Of Python and NumPy the generators that all threads have in common are watched. Who else draws is known only of
    functions that are called as ``random.…``.

    Raises
    ------
    ValueError
        If this thread does, unless it is to be ignored.
    """
    draws, here = _Draws(ignored), threading.get_ident()

    def noting(draw: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            by_others = threading.get_ident() != here or ignored()
            draws.noted |= not by_others
            draws.by_others |= by_others
            return draw(*args, **kwargs)

        return noted

    before, states = {name: getattr(random, name) for name in _DRAWING}, _states()
    try:
        for name, draw in before.items():
            setattr(random, name, noting(draw))
        with draws:
            yield
    finally:
        for name, draw in before.items():
            setattr(random, name, draw)
    # a draw by a name that was imported is seen only by what it leaves behind
    now = _states()
    if draws.noted or (not draws.by_others and any(now[name] != state for name, state in states.items())):
        raise ValueError("it draws a random number, which would be built in")


@contextlib.contextmanager
def answered_otherwise(names: Iterable[str]) -> Iterator[None]:
    """Let torch answer some of the questions as it does in the other mode."""
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(QUESTIONS[name][1]())
        yield
