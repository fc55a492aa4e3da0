"""What every operator shares: who computes, what is checked before, and how it is differentiated.

An operator has up to three implementations of the same mathematics: plain torch, the CUDA kernel on a GPU,
and the same kernel in the CPU simulator. :func:`backend` chooses; :func:`choose` is how an operator asks.
:func:`differentiable` makes of them one function that can be differentiated in every way that torch knows.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import numbers
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec

import torch
from torch import Tensor
from torch._functorch.eager_transforms import enable_inplace_requires_grad
from torch._library.custom_ops import CustomOpDef
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function, has_torch_function

from companion.cuda import proof

P = ParamSpec("P")

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
    return _of_context.get() or _default


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


def backend(name: str | None = None) -> str | Any:
    """Choose who computes, or ask who would.

    Parameters
    ----------
    name : {"auto", "torch", "kernel", "simulator"}, optional
        ``"auto"``: a CUDA tensor goes to the kernel once that has proved itself on this GPU, see
        :mod:`companion.cuda.proof`, and to torch if it has not or if CuPy is missing; a CPU tensor to torch.
        ``"torch"``: plain torch, everywhere. ``"kernel"``: the kernel, proved or not; a CPU tensor is an error.
        ``"simulator"``: the kernel's source, run on the CPU, for tests and for readers; needs g++.
        Whatever is chosen, :func:`torch.compile` and the transforms of :mod:`torch.func` see plain torch.

    Returns
    -------
    str
        Without a name: who would compute for a tensor on the default accelerator: ``"kernel"``, ``"torch"`` or
        ``"simulator"``. Asking proves nothing: "kernel" is said of kernels that have still to prove themselves.
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
    A backward pass computes as its forward pass was told to, whoever runs it and when. What was compiled asks
    each time that it runs.

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
        return "kernel" if torch.cuda.is_available() and _launchable() else "torch"
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


def choose(z: torch.Tensor, operator: proof.Operator) -> str:
    """Who computes this operator for this tensor in eager mode: "torch", "kernel" or "simulator"."""
    selected = _selected()
    if selected == "auto" and not z.is_cuda:
        return "torch"
    # a fake tensor, from which only shapes are to be learned, has no memory that a kernel could read
    if selected == "torch" or z.dtype not in KERNEL_DTYPES or isinstance(z, FakeTensor):
        return "torch"
    if selected == "auto":
        return "kernel" if _launchable() and proof.holds(operator, z.device) else "torch"
    if selected == "kernel" and not z.is_cuda:
        raise RuntimeError(
            f"backend 'kernel': the tensor is on {z.device}, the kernel needs a CUDA device; "
            "move the tensor, or use backend 'auto', 'torch' or 'simulator'"
        )
    if selected == "simulator" and z.device.type != "cpu":
        raise RuntimeError(f"backend 'simulator': the tensor is on {z.device}, the simulator needs the CPU")
    return selected


def overridable(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """A public function as PyTorch's own are: a ``TorchFunctionMode``, a tensor subclass with ``__torch_function__`` or
    a proxy of :mod:`torch.fx` may take the whole call, instead of seeing only what it is made of."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        relevant = (*args, *kwargs.values())
        if has_torch_function(relevant):
            result: Tensor = handle_torch_function(call, relevant, *args, **kwargs)
            return result
        return function(*args, **kwargs)

    call.__prepare_scriptable__ = functools.partial(refuse_script, function)  # type: ignore[attr-defined]
    return call


def refuse_script(this: Any) -> None:
    """What ``torch.jit.script`` is told by a function, and by a module as its ``__prepare_scriptable__``."""
    name = getattr(this, "__name__", type(this).__name__)
    raise TypeError(
        f"torch.jit.script: got {name}, which its language cannot say, allowed are torch.compile, torch.export and "
        "torch.jit.trace"
    )


def transformed() -> bool:
    """Whether a compiler, a function transform or a tracer is looking: then only plain torch can be followed."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or _traced()


def exporting() -> bool:
    """Whether torch.export is looking: it wants one graph, and breaks none."""
    # torch 2.4 cannot be asked, and the function that asks says True to every compiler in torch 2.11
    return COMPILES and torch.compiler._is_exporting_flag


_PROXY, _FUNCTIONAL = torch._C._TorchDispatchModeKey.PROXY, torch._C._TorchDispatchModeKey.FUNCTIONAL


def _traced() -> bool:
    """Whether make_fx, AOTAutograd or torch.jit.trace writes down what is computed: a launch would be lost."""
    return (
        torch._C._get_dispatch_mode(_PROXY) is not None
        or torch._C._get_dispatch_mode(_FUNCTIONAL) is not None
        or torch._C._get_tracing_state() is not None
    )


def on_cpu(x: torch.Tensor) -> bool:
    """Whether this is a tensor in the processor's memory, whose numbers can be looked at."""
    return x.device.type == "cpu" and not isinstance(x, FakeTensor)


def batched(grad: torch.Tensor) -> bool:
    """Whether this is a batch of gradients in disguise, as ``torch.autograd.grad(is_grads_batched=True)`` sends one."""
    return torch._C._functorch.is_legacy_batchedtensor(grad)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, float32 for everything shorter."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``x`` in another dtype. A conversion to the same dtype is left out, not left to ``x.to``: inside an
    ``autograd.Function``, the compiler of torch 2.11 returns zero gradients where it sees one."""
    return x if x.dtype == dtype else x.to(dtype)


#: Of the devices on which somebody may compute, those that have autocast. Asked here: the compiler of torch 2.11 cannot
#: trace the question.
_AUTOCAST = frozenset(filter(torch.amp.is_autocast_available, ("cpu", "cuda", "mps", "xpu", "hpu", "mtia")))


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """A context in which autocast is off: what is computed inside keeps the dtypes that it was given."""
    if device_type in _AUTOCAST and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()


# --- differentiation ---------------------------------------------------------------------------------------------


def differentiable(
    plain: Callable[..., Tensor],
    forward: Callable[..., tuple[Tensor, tuple[Tensor, ...]]],
    backward: Callable[..., tuple[Tensor | None, ...]],
    compiled: Callable[..., Tensor] | None = None,
) -> Callable[..., Tensor]:
    """One function of an operator's implementations, whoever looks at it.

    In eager mode ``forward`` and ``backward`` compute: they may launch kernels, work in place, and ask :func:`choose`.
    Derivatives of higher order, batches of gradients, forward mode and the transforms of :mod:`torch.func` see
    ``plain``; so does the compiler. All of them compute without autocast.

    Parameters
    ----------
    plain : callable
        The operands → the result, in differentiable tensor maths. Operands are tensors, or anything else that is
        handed on as it is.
    forward : callable
        The operands → the result, and tensors that are worth saving.
    backward : callable
        The gradient of the result, for each operand whether its gradient is needed, what ``forward`` saved, the
        operands → for each operand its gradient, or None. What is captured follows the operands, here as there.
    compiled : callable, optional
        What the compiler sees instead of ``plain``.

    Returns
    -------
    callable
        Takes the operands, and as ``captured`` tensors that ``plain`` uses without being handed them: what a function
        among the operands has learned.
    """

    class Eager(torch.autograd.Function):
        """Without ``setup_context``: torch would inspect the signature of ``forward`` at every call."""

        @staticmethod
        def forward(ctx: Any, count: int, *given: Any) -> Tensor:
            result: Tensor
            result, saved = _exactly(forward, given[:count])
            ctx.count, ctx.selected = count, _selected()
            ctx.others = [_TENSOR if isinstance(x, Tensor) else x for x in given]
            ctx.save_for_backward(*(x for x in given if isinstance(x, Tensor)), *saved)
            # what follows may work in place, and torch refuses that for a view that was made in here
            return torch.ops.aten._unsafe_view(result, result.shape) if result._is_view() else result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
            tensors = iter(ctx.saved_tensors)
            given = [next(tensors) if x is _TENSOR else x for x in ctx.others]
            operands, captured, needs = given[: ctx.count], given[ctx.count :], ctx.needs_input_grad[1:]
            if torch.is_grad_enabled() or transformed() or batched(grad) or has_tangent(grad):
                return None, *_gradients_through(plain, grad, operands, captured, needs)
            token = _of_context.set(ctx.selected)
            try:
                return None, *_exactly(backward, (grad, needs, tuple(tensors), *given))
            finally:
                _of_context.reset(token)

    seen = plain if compiled is None else compiled

    def function(*operands: Any, captured: tuple[Tensor, ...] = ()) -> Tensor:
        result: Tensor
        if torch._C._are_functorch_transforms_active() or any(map(has_tangent, operands)):
            result = _exactly(plain, operands)
        elif torch.compiler.is_compiling():
            result = _exactly(seen, operands)
        elif _traced():
            result = _exactly(plain, operands)
        else:
            result = Eager.apply(len(operands), *operands, *captured)
        return result

    return function


_TENSOR = object()


def _exactly(compute: Callable[..., Any], given: Sequence[Any]) -> Any:
    """The result without autocast; the first of what is given is a tensor."""
    if not torch._C._is_any_autocast_enabled():
        return compute(*given)
    with without_autocast(given[0].device.type):
        return compute(*given)


def tangent_of(x: Any) -> Tensor | None:
    """What forward-mode differentiation has given to it."""
    if forward_ad._current_level < 0 or not isinstance(x, Tensor):
        return None
    tangent: Tensor | None = forward_ad.unpack_dual(x).tangent  # type: ignore[no-untyped-call]
    return tangent


def has_tangent(x: Any) -> bool:
    """Whether forward-mode differentiation is looking."""
    return tangent_of(x) is not None


def _stand_in(x: Any) -> Any:
    """The same tensor without what it comes from: a gradient by it is asked for, and nothing above is disturbed."""
    if not isinstance(x, Tensor):
        return x
    # what eager mode has saved is none of a transform's business
    with torch._C._DisableFuncTorch(), enable_inplace_requires_grad(True):
        leaf = x.detach().requires_grad_(x.requires_grad)
    tangent = tangent_of(x)
    return leaf if tangent is None else forward_ad.make_dual(leaf, tangent)  # type: ignore[no-untyped-call]


def _gradients_through(
    plain: Callable[..., Tensor], grad: Tensor, operands: list[Any], captured: list[Tensor], needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients by the plain maths: differentiable functions of everything, if a graph is being made."""
    with torch.enable_grad(), without_autocast(grad.device.type):
        stand_ins = [_stand_in(x) for x in operands]
        f = plain(*stand_ins)
    if not f.requires_grad:  # nothing that is needed has an influence, such as weights behind a step
        return (None,) * len(needs)
    # what is captured are leaves, with nothing above them
    of = [(x, y) for x, y in zip((*stand_ins, *captured), (*operands, *captured), strict=True) if isinstance(x, Tensor)]
    wanted = [need for x, need in zip((*operands, *captured), needs, strict=True) if isinstance(x, Tensor)]
    found = iter(_reattached_gradients([f], [grad], of, wanted))
    return tuple(next(found) if isinstance(x, Tensor) else None for x in (*operands, *captured))


def _reattached_gradients(
    results: list[Tensor], grads: list[Tensor], of: list[tuple[Tensor, Tensor]], wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients of results by stand-ins, where wanted; functions of what these stand for, if a graph is being made.

    ``of`` has pairs: what the results were computed from, and what it stands for.
    """
    create_graph = torch.is_grad_enabled()
    if create_graph and (torch._C._are_functorch_transforms_active() or any(map(batched, grads))):
        raise RuntimeError(
            "create_graph: got True for a batch of gradients of what was computed outside of it, allowed is one "
            "gradient at a time; or let torch.func transform the whole computation"
        )
    seeds = [_stand_in(grad) for grad in grads] if create_graph else grads
    asked = [x for (x, _), want in zip(of, wanted, strict=True) if want]
    with without_autocast(grads[0].device.type):
        gradients = torch.autograd.grad(
            results, asked, seeds, retain_graph=True, create_graph=create_graph, allow_unused=True
        )
    if create_graph:
        known = [x for x in gradients if x is not None]
        pairs = [*of, *zip(seeds, grads, strict=True)]
        attached = iter(_Reattached.apply(known, list(map(tangent_of, known)), pairs, *(x for _, x in pairs)))
        gradients = tuple(None if x is None else next(attached) for x in gradients)
    found = iter(gradients)
    return tuple(next(found) if want else None for want in wanted)


class _Reattached(torch.autograd.Function):
    """Results that were computed from stand-ins, as functions of the originals."""

    @staticmethod
    def forward(
        ctx: Any,
        results: list[Tensor],
        tangents: list[Tensor | None],
        of: list[tuple[Tensor, Tensor]],
        *originals: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.results, ctx.tangents, ctx.of = results, tangents, of
        ctx.set_materialize_grads(False)
        return tuple(x.detach() for x in results)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        known = zip(ctx.results, ctx.tangents, strict=True)
        return tuple(torch.zeros_like(x) if tangent is None else tangent for x, tangent in known)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        known = [(x, g) for x, g in zip(ctx.results, grads, strict=True) if g is not None and x.requires_grad]
        wanted = ctx.needs_input_grad[3:]
        if not known:
            return (None,) * len(ctx.needs_input_grad)
        results, given = (list(each) for each in zip(*known, strict=True))
        return None, None, None, *_reattached_gradients(results, given, ctx.of, wanted)


def opaque(
    name: str,
    operands: str,
    settings: str,
    forward: tuple[Callable[..., Any], Callable[..., Any]],
    backward: tuple[Callable[..., Any], Callable[..., Any]],
) -> tuple[CustomOpDef, CustomOpDef]:
    """An operator that a compiled graph calls and does not look into, and one that computes its gradients.

    Parameters
    ----------
    name : str
        Such as "companion::dac_conv2d"; the second is called ``<name>_backward``.
    operands, settings : str
        Of the schema, as PyTorch writes it: the tensors that have gradients, then the rest. No argument is changed; the
        result is one tensor and shares no memory with them.
    forward : tuple of callable
        What it does, of the operands and settings; it may ask :func:`choose`. And the same from shapes alone: an empty
        tensor with the shape, dtype and strides of what the first returns.
    backward : tuple of callable
        The same for the gradient of the result, the operands, the settings, and which operands' gradients are needed;
        they return a tensor for each operand, empty where it is not needed.
    """
    count = operands.count(",") + 1
    results = ", ".join(["Tensor"] * count)

    def declared(name: str, schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> CustomOpDef:
        op = torch.library.custom_op(name, compute, mutates_args=(), schema=schema)
        op.register_fake(fake)
        return op

    op = declared(name, f"({operands}, {settings}) -> Tensor", *forward)
    needed = f"(Tensor grad, {operands}, {settings}, bool[{count}] needs)"
    gradients = declared(f"{name}_backward", f"{needed} -> ({results})", *backward)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:count])
        ctx.settings = inputs[count:]

    def autograd(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        needs = list(ctx.needs_input_grad[:count])
        found = gradients(grad, *ctx.saved_tensors, *ctx.settings, needs)
        return (*(g if need else None for g, need in zip(found, needs, strict=True)), *(None for _ in ctx.settings))

    op.register_autograd(autograd, setup_context=setup)
    return op, gradients


def image_format(z: torch.Tensor) -> torch.memory_format:
    """That of the results for the images ``z``: channels-last for channels-last."""
    last = z.is_contiguous(memory_format=torch.channels_last) and not z.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format


def memory_order(x: torch.Tensor) -> list[int] | None:
    """The permutation of dimensions that makes a dense tensor contiguous; None if it is, or if none does."""
    if x.is_contiguous():
        return None
    strides = x.stride()
    order = sorted(range(x.ndim), key=lambda d: (-strides[d], d))
    return order if x.permute(order).is_contiguous() else None


def in_order_of_memory(x: Tensor, dim: int, compute: Callable[[Tensor, int], Tensor]) -> Tensor:
    """``compute(x, dim)`` with the dimensions of a dense tensor in the order in which they lie, channels-last or
    transposed as they are: nothing is copied, and the result lies as ``x`` does."""
    order = None if x.is_contiguous() or transformed() else memory_order(x)
    if order is None:
        return compute(x, dim)
    result = compute(x.permute(order), order.index(dim % x.ndim))
    return result.permute([order.index(d) for d in range(x.ndim)])


def check_floating(name: str, value: torch.Tensor) -> None:
    """Refuse what is no tensor of floating dtype, and a compiler that is too old."""
    if not COMPILES and torch.compiler.is_compiling():
        oldest = ".".join(map(str, OLDEST_COMPILER))
        raise RuntimeError(f"torch.compile: got torch {torch.__version__}, allowed is {oldest} or newer; eager runs")
    if isinstance(value, torch.fx.Proxy):  # a tracer asks, who has no tensor yet
        return
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: got {type(value).__name__}, allowed is a torch.Tensor of floating dtype")
    if not value.is_floating_point():
        raise TypeError(f"{name}: got dtype {value.dtype}, allowed is a floating dtype such as torch.float32")
    if value.layout != torch.strided or value.is_nested:
        got = "a nested tensor" if value.is_nested else f"layout {value.layout}"
        raise TypeError(f"{name}: got {got}, allowed is a dense tensor, layout torch.strided; see Tensor.to_dense")


def as_float(name: str, value: float) -> float:
    """A real number as a float, or a clear error."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: got {type(value).__name__}, allowed is a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: got a number that no float can hold, allowed is up to 1.8e308") from None


def as_int(name: str, value: int, minimum: int | None = None) -> int:
    """A whole number, NumPy's among them, as an int, or a clear error."""
    if isinstance(value, bool) or not isinstance(value, (int, numbers.Integral)):
        raise TypeError(f"{name}: got {value!r}, allowed is an int")
    if minimum is not None and value < minimum:
        raise ValueError(f"{name}: got {value}, allowed is at least {minimum}")
    return int(value)


def check_flag(name: str, value: bool) -> None:
    """Refuse what is neither True nor False."""
    if value not in (True, False):
        raise TypeError(f"{name}: got {value!r}, allowed are True and False")


def check_dtype(dtype: torch.dtype | None) -> None:
    """Refuse parameters that could have no gradient."""
    if dtype is not None and not dtype.is_floating_point:
        raise TypeError(f"dtype: got {dtype}, allowed is a floating dtype such as torch.float32")


def where_else(channels: int, x: torch.Tensor) -> str:
    """What to add to an error about channels that do not lie along ``dim``: where tokens and images have theirs."""
    for dim, what in ((-1, "tokens (N, L, C)"), (1, "images (N, C, H, W)")):
        if x.ndim > 2 and x.shape[dim] == channels:
            return f"; for {what}, as here, dim={dim}"
    return ""


def check_parameter(
    name: str, value: float | torch.Tensor, z: torch.Tensor, dim: int, *, minimum: float | None = None
) -> None:
    """Refuse a parameter that is neither a number, nor 0-d, nor one value per channel of ``z`` along ``dim``."""
    if isinstance(value, torch.Tensor):
        check_floating(name, value)
        if value.device != z.device:
            raise ValueError(f"{name}: got device {value.device}, allowed is the device of z, {z.device}")
        if value.ndim == 0:
            return
        if z.ndim == 0 or not -z.ndim <= dim < z.ndim:
            raise ValueError(
                f"{name}: got shape {tuple(value.shape)} with dim={dim}, but z has {z.ndim} dimensions; "
                "allowed is a number, a 0-d tensor, or one value per channel along an existing dim"
            )
        if value.ndim != 1 or value.shape[0] != z.shape[dim]:
            raise ValueError(
                f"{name}: got shape {tuple(value.shape)}, allowed is a number, a 0-d tensor, "
                f"or shape ({z.shape[dim]},): one value per channel of z along dim={dim}{where_else(value.shape[0], z)}"
            )
    elif isinstance(value, numbers.Real) and not isinstance(value, bool):
        value = as_float(name, value)
        if value != value or (minimum is not None and value < minimum):
            allowed = "any number" if minimum is None else f"a number ≥ {minimum:g}"
            raise ValueError(f"{name}: got {value!r}, allowed is {allowed}")
    else:
        raise TypeError(f"{name}: got {type(value).__name__}, allowed is a number or a torch.Tensor")
