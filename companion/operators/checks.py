"""What operators ask of their arguments; every refusal names the argument, what came, and what is allowed."""

from __future__ import annotations

import numbers

import torch

from companion.operators.choice import COMPILES, OLDEST_COMPILER


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
    if not isinstance(value, bool):
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
