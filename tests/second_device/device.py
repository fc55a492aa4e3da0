"""A second device without a GPU, called "elsewhere": its tensors lie in the processor's memory and behave as CUDA's do.

Tensors of two devices do not mix, ``numpy()`` is refused, a generator belongs to one device, and what CUDA's solvers
cannot do is an error. What is alive is counted in bytes. Of `without_numbers` tensors only shapes exist: networks of
any size run on them in no time and no memory, and what is read from them is invented.

torch calls such a device PrivateUse1. Its name, its tensors and its place in autograd hold for the whole process, and
must be known before the first backward pass: `register` belongs into a process of its own.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "elsewhere"
aten = torch.ops.aten

#: Where the numbers are: "cpu", or "meta", which has none.
_home = "cpu"

#: As on CUDA, indices may come from the CPU, and copies go where they like.
_MIXING = {
    *(aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default),
    *(aten._to_copy.default, aten.copy_.default),
}
#: Not among what torch calls pointwise, but here, too, a CPU tensor without dimensions counts as a number.
_NUMBERS = {aten.fill_.Tensor, aten.masked_fill.Tensor, aten.masked_fill_.Tensor}


class Memory:
    """The bytes of one storage of the device, counted as long as a tensor has it."""

    live = peak = 0
    _known: ClassVar[weakref.WeakValueDictionary[int, Memory]] = weakref.WeakValueDictionary()

    def __init__(self, size: int) -> None:
        self.size = size
        Memory.live += size
        Memory.peak = max(Memory.peak, Memory.live)

    def __del__(self) -> None:
        Memory.live -= self.size

    @classmethod
    def restart(cls) -> int:
        """Return the most bytes that were alive at a time since the last call."""
        peak, cls.peak = cls.peak, cls.live
        return peak

    @classmethod
    def of(cls, inner: Tensor) -> Memory:
        """That of a tensor, which it may share with others."""
        storage = inner.untyped_storage()
        memory = cls._known.get(storage._cdata)
        if memory is None:
            memory = cls._known[storage._cdata] = cls(storage.nbytes())
        return memory


@contextlib.contextmanager
def without_numbers() -> Iterator[None]:
    """From here on tensors of the device have shapes and sizes, but hold nothing."""
    global _home
    _home = "meta"
    try:
        yield
    finally:
        _home = "cpu"


class Generator(torch.Generator):
    """A generator that belongs to a device, as CUDA's do; all of them draw on the CPU."""

    #: By where torch has it: what operators are given is another object of Python.
    places: ClassVar[dict[int, torch.device]] = {}

    def __new__(cls, device: Any = "cpu") -> Generator:
        generator = super().__new__(cls, "cpu")
        cls.places[generator._cdata] = torch.device(device)
        return generator

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it draws."""
        return self.places[self._cdata]


class SecondTensor(Tensor):
    """A tensor of the second device, around one that holds its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> SecondTensor:
        self = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device(NAME, 0),
        )
        self.inner, self.memory = inner, Memory.of(inner)
        return self

    # A plain tensor to all who ask for subclasses, as one on a GPU is.
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})

    def numpy(self, *, force: bool = False) -> Any:
        """As CUDA's: only what is on the CPU shares its memory with NumPy."""
        if force:
            return self.detach().cpu().resolve_conj().resolve_neg().numpy()
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        """As CUDA's: torch refuses it to subclasses."""
        return self.detach().cpu().tolist()

    def __repr__(self, **kwargs: Any) -> str:
        return f"{self.detach().cpu()!r} on {self.device}"

    def __format__(self, spec: str) -> str:
        return format(self.item() if self.ndim == 0 else str(self), spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            copied = self.detach().clone()
            memo[id(self)] = (
                torch.nn.Parameter(copied, self.requires_grad)
                if isinstance(self, torch.nn.Parameter)
                else copied.requires_grad_(self.requires_grad)
            )
        return memo[id(self)]


def _compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operator of torch gives for tensors of this device."""
    tensors = list(_tensors((args, kwargs)))
    _check(func, args, kwargs, tensors)
    target = kwargs.get("device")
    to_cpu = target is not None and torch.device(target).type == "cpu"
    known = {id(x.inner): x for x in tensors if isinstance(x, SecondTensor)}
    inner_args, inner_kwargs = _changed((args, kwargs), _unwrapped)
    compute = func if _home == "cpu" else partial(_invented, func, to_cpu)
    result = compute(*inner_args, **inner_kwargs)
    if to_cpu or (func is aten.copy_.default and not isinstance(args[0], SecondTensor)):
        return result
    return _changed(result, lambda x: known[id(x)] if id(x) in known else _wrapped(x))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_changed(each, change) for each in value)
    if isinstance(value, dict):
        return {key: _changed(each, change) for key, each in value.items()}
    return change(value)


def _wrapped(value: Any) -> Any:
    return SecondTensor(value) if isinstance(value, Tensor) else value


def _unwrapped(value: Any) -> Any:
    if isinstance(value, SecondTensor):
        return value.inner
    if isinstance(value, torch.device) and value.type == NAME:
        return torch.device(_home)
    return value


def _check(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> None:
    """Refuse what CUDA refuses, and what cannot be followed here."""
    if func.namespace != "aten" or torch.Tag.inplace_view in func.tags:
        raise NotImplementedError(f"{func} on the device {NAME!r}: its tensors do not change their shape")
    generator = kwargs.get("generator")
    if generator is not None and Generator.places.get(generator._cdata, generator.device).type != NAME:
        raise RuntimeError(f"Expected a {NAME!r} device type for generator but found 'cpu'")
    if func is aten.linalg_lstsq.default and kwargs.get("driver") not in (None, "gels"):
        raise RuntimeError("torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA")
    if func in _MIXING and (func in (aten._to_copy.default, aten.copy_.default) or isinstance(args[0], SecondTensor)):
        return
    numbers = torch.Tag.pointwise in func.tags or func in _NUMBERS
    others = [x for x in tensors if not isinstance(x, SecondTensor) and not (numbers and x.ndim == 0)]
    written = func._schema.is_mutable and not isinstance((kwargs.get("out", args[0] if args else None)), SecondTensor)
    if others or written:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and cpu! "
            f"(in {func})"
        )


# --- without numbers ----------------------------------------------------------------------------------------------


def _invented(func: Any, to_cpu: bool, *args: Any, **kwargs: Any) -> Any:
    """What an operator gives for tensors that hold nothing; what depends on numbers is as large as it may be."""
    if func is aten._local_scalar_dense.default:
        return _invention((), args[0].dtype).item()
    if func is aten._to_copy.default and to_cpu:
        return _invention(args[0].shape, kwargs.get("dtype") or args[0].dtype)
    if func is aten.copy_.default and args[0].device.type == "cpu":
        return args[0].copy_(_invention(args[1].shape, args[1].dtype))
    if func is aten.index.Tensor:
        return func(args[0], [each for index in args[1] for each in _indices(index)])
    if func is aten.bincount.default:
        return torch.empty(max(args[2:], default=1), dtype=torch.int64, device="meta")
    kwargs = {**kwargs, "generator": None} if "generator" in kwargs else kwargs
    if any(each.alias_info for each in func._schema.arguments):  # a view, or written to
        return func(*args, **kwargs)
    key = (func, *_description((args, kwargs)))
    if key not in _shapes:
        _shapes[key] = _changed(func(*args, **kwargs), _shape)
    return _changed(_shapes[key], lambda x: x() if callable(x) else x)


#: What operators gave, by what they were given: layers and batches are alike, and torch takes its time for each.
_shapes: dict[tuple[Any, ...], Any] = {}


def _description(value: Any) -> Iterator[Any]:
    if isinstance(value, Tensor):
        yield from (value.dtype, value.shape, value.stride())
    elif isinstance(value, (list, tuple)):
        yield len(value)
        for each in value:
            yield from _description(each)
    elif isinstance(value, dict):
        yield from _description(list(value.items()))
    else:
        yield type(value), value


def _shape(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return partial(torch.empty_strided, value.shape, value.stride(), dtype=value.dtype, device="meta")


def _invention(shape: Any, dtype: torch.dtype) -> Tensor:
    """Numbers from 0 to 1; the first two classes by turns; true."""
    if dtype.is_floating_point:
        return torch.rand(shape, dtype=torch.float32, generator=torch.Generator().manual_seed(0)).to(dtype)
    if dtype == torch.bool:
        return torch.ones(shape, dtype=dtype)
    return torch.arange(math.prod(shape), dtype=dtype).remainder_(2).reshape(shape)


def _indices(index: Tensor | None) -> list[Tensor | None]:
    """Instead of a mask the indices of all that it may choose."""
    if index is None or index.dtype not in (torch.bool, torch.uint8):
        return [index]
    return [torch.empty(index.numel(), dtype=torch.int64, device="meta")] * index.ndim


# --- registration -------------------------------------------------------------------------------------------------


def register() -> None:
    """Make the device known to this process."""
    _setup_privateuseone_for_python_backend(NAME)
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    fallback = torch.library.Library("_", "IMPL")
    fallback.fallback(lambda func, *args, **kwargs: _compute(func, args, kwargs), "PrivateUse1")
    # torch.tensor(…, device="elsewhere") copies where no subclass is looked at, and wants this operator by its name.
    copies = torch.library.Library("aten", "IMPL")
    copies.impl("copy_", lambda *args: _compute(aten.copy_.default, args, {}), "PrivateUse1")
    _libraries.extend((fallback, copies, *_autocast()))
    torch.Generator = Generator  # type: ignore[misc]


def _autocast() -> tuple[torch.library.Library, torch.library.Library]:
    """Under autocast convolutions, linear layers and prelu compute in its precision; all else as it is given."""
    key = torch._C.DispatchKey.AutocastPrivateUse1
    fallback, lower = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    fallback.fallback(torch.library.fallthrough_kernel, key.name)
    for operator in (aten.conv2d.default, aten.linear.default, aten.prelu.default):

        def compute(*args: Any, operator: Any = operator) -> Any:
            dtype = torch.get_autocast_dtype(NAME)
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
                return operator(*(arg.to(dtype) if isinstance(arg, Tensor) else arg for arg in args))

        lower.impl(operator.name().removesuffix(".default"), compute, key.name)
    return fallback, lower


#: What is registered holds as long as these live.
_libraries: list[torch.library.Library] = []
