"""Who computes: plain torch, the CUDA kernel on a GPU, or the same kernel in the CPU simulator.

:func:`backend` chooses; :func:`choose` is how an operator asks.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import overload

import torch
from torch._subclasses import FakeTensor

from companion.operators.declaration import Operator

BACKENDS = ("auto", "torch", "kernel", "simulator")

#: The dtypes that kernels are instantiated for, and the suffix of the kernel's name.
KERNEL_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}

#: The oldest torch whose compiler is tested with these operators. In eager, pyproject.toml says which is the oldest.
OLDEST_COMPILER = (2, 11)
COMPILES = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= OLDEST_COMPILER

#: What holds where nothing else was chosen; only the main thread changes it.
_default = "auto"
_of_context: ContextVar[str | None] = ContextVar("companion.backend", default=None)


def _selected() -> str:
    return _of_context.get() or _of_backward_pass() or _default


def _of_backward_pass() -> str | None:
    """The choice where a backward pass was begun: on a GPU, threads of autograd's own run it."""
    if torch.compiler.is_compiling() or torch._C._current_graph_task_id() == -1:
        return None
    context = torch._C._get_obj_in_tls("context") if torch._C._is_key_in_tls("context") else None
    return None if context is None else context.get(_of_context)


class _Selection(str):
    """The name of the backend that was just selected; as a context manager it restores the one before."""

    _former: str | None  # of the context
    _former_default: str

    def __enter__(self) -> _Selection:
        global _default
        if self._former is None and _in_main_thread():
            _default = self._former_default
        _of_context.set(str(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _of_context.set(self._former)


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


@overload
def backend(name: None = None) -> str: ...
@overload
def backend(name: str) -> _Selection: ...
def backend(name: str | None = None) -> str:
    """Choose who computes, or ask who would.

    Parameters
    ----------
    name : {"auto", "torch", "kernel", "simulator"}, optional
        ``"auto"``: a CUDA tensor goes to the kernel once that has proved itself on this GPU, see
        :mod:`companion.proofs.verdicts`, and to torch if it has not or if CuPy is missing; a CPU tensor to torch.
        ``"torch"``: plain torch, everywhere. ``"kernel"``: the kernel, proved or not; a CPU tensor is an error.
        ``"simulator"``: the kernel's source, run on the CPU, for tests and for readers; needs g++.
        Whatever is chosen, :func:`torch.compile` and the transforms of :mod:`torch.func` see plain torch.

    Returns
    -------
    str
        Without a name: who would compute for a tensor on the default accelerator: ``"kernel"``, ``"torch"`` or
        ``"simulator"``. Asking proves nothing: "kernel" is said of kernels that have still to prove themselves,
        where those of some operators have not, and before the GPU is in use.
        With a name: the name; used in a ``with`` statement, it restores the former choice.

    Raises
    ------
    ValueError
        If the name is none of the four.

    Notes
    -----
    In a ``with`` statement the choice holds for the block, in this thread or asyncio task alone: tasks that begin
    inside inherit it, threads do not. Called plainly it holds until the next choice: in the main thread outside of such
    blocks for the whole program, all threads without a choice of their own included, at once and also those of later;
    inside a block until its end, in another thread for that thread. Between the call and the beginning of its block,
    a ``with`` statement of the main thread is a plain call: for that instant threads without a choice see it.
    A backward pass computes as its forward pass was told to, whoever runs it and when. What was compiled, and what
    is computed again for a checkpoint, asks each time that it runs, in a backward pass where that was begun. On a GPU
    autograd has threads of its own, and an older torch, such as 2.11, does not tell them: with it choose plainly, in
    the main thread.

    Examples
    --------
    >>> import companion
    >>> with companion.backend("torch"):
    ...     companion.backend()
    'torch'
    """
    global _default
    if name is None:
        if (selected := _selected()) != "auto":
            return selected
        if not (torch.cuda.is_available() and _launchable()):
            return "torch"
        # who only asks opens no GPU, and what a compiler looks at no file
        asks = not torch.compiler.is_compiling() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return "torch" if asks and trusts_none(torch.device("cuda")) else "kernel"
    if name not in BACKENDS:
        raise ValueError(f"backend: got {name!r}, allowed are {', '.join(map(repr, BACKENDS))}")
    selection = _Selection(name)
    selection._former, selection._former_default = _of_context.get(), _default
    if selection._former is None and _in_main_thread():
        _default = name
    else:
        _of_context.set(name)
    return selection


@functools.cache
def _launchable() -> bool:
    """Whether torch is NVIDIA's, and there is something to launch kernels with."""
    return torch.version.cuda is not None and importlib.util.find_spec("cupy") is not None


def _does_not_know(*_: object) -> bool:
    return False


#: Whether the kernels of an operator may compute on a device: what stands above it, :mod:`companion.proofs`, knows.
trusts: Callable[[Operator, torch.device], bool] = _does_not_know

#: Whether it is known without a proof that those of no operator may.
trusts_none: Callable[[torch.device], bool] = _does_not_know


def choose(z: torch.Tensor, operator: Operator) -> str:
    """Who computes this operator for this tensor in eager mode: "torch", "kernel" or "simulator"."""
    selected = _selected()
    if selected == "auto" and not z.is_cuda:
        return "torch"
    # a fake tensor, from which only shapes are to be learned, has no memory that a kernel could read
    if selected == "torch" or z.dtype not in KERNEL_DTYPES or isinstance(z, FakeTensor):
        return "torch"
    if selected == "auto":
        return "kernel" if _launchable() and trusts(operator, z.device) else "torch"
    if selected == "kernel" and not z.is_cuda:
        raise RuntimeError(
            f"backend 'kernel': the tensor is on {z.device}, the kernel needs a CUDA device; "
            "move the tensor, or use backend 'auto', 'torch' or 'simulator'"
        )
    if selected == "simulator" and z.device.type != "cpu":
        raise RuntimeError(f"backend 'simulator': the tensor is on {z.device}, the simulator needs the CPU")
    return selected
