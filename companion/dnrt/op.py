"""The public functions: ``raa`` with its checks, its autograd, and who computes it, and ``arr_loss``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from torch import Tensor

from companion.activations import check_activation
from companion.dnrt import kernel, reference
from companion.dnrt.reference import GATES
from companion.operators import (
    as_int,
    cast,
    check_floating,
    choose,
    compute_dtype,
    differentiable,
    in_order_of_memory,
    overridable,
    where_else,
    without_autocast,
)

__all__ = ["arr_loss", "raa"]

Gate: TypeAlias = str | Callable[[Tensor], Tensor]


@overridable
def raa(x: Tensor, weight: Tensor, bias: Tensor, gate: Gate = "gelu", dim: int = -1) -> Tensor:
    r"""Response-adaptive activation: GELU with a threshold that depends on the whole vector.

    .. math:: \operatorname{RAA}(\mathbf x) = \mathbf x \odot \Phi(\mathbf x + \mathbf w^{\mathsf T}\mathbf x + b)

    One offset :math:`\mathbf w^{\mathsf T}\mathbf x + b` moves the gate of every element of the vector; what the gate
    multiplies stays where it is. With :math:`\mathbf w = 0, b = 0` it is GELU.

    Parameters
    ----------
    x : Tensor
        Vectors of d elements along ``dim``, of any shape, device and floating dtype.
    weight : Tensor
        (d,).
    bias : Tensor
        One number, of shape () or (1,).
    gate : {"gelu", "silu", "relu"} or callable
        :math:`\Phi`, the sigmoid, or the unit step, so that :math:`x\,[x + \mathbf w^{\mathsf T}\mathbf x + b > 0]`; or
        any elementwise function of a tensor; what that has learned gets its gradient.
    dim : int
        Where the elements of a vector lie: −1 for tokens, 1 for images (N, C, H, W).

    Returns
    -------
    Tensor
        Shape and dtype of ``x``. float16 and bfloat16 are computed in float32. A NaN makes its own vector NaN, and no
        other.

    Raises
    ------
    TypeError
        If an operand has no floating dtype, or the gate is neither a name nor callable.
    ValueError
        If shapes or devices do not fit, ``dim`` does not exist, or the gate's name is unknown.

    Notes
    -----
    Differentiable twice and more. Saved are ``x`` and one number for each vector; with a gate that is a function,
    whatever autograd saves. Images are taken as they lie, channels-last or not, without a permuted copy. The slope of
    the unit step is 0 everywhere, so with "relu" no gradient reaches ``weight`` and ``bias``. Φ keeps its small values:
    they are right relative to themselves. Chapter: *DNRT* (``book/mechanisms/dnrt``).

    References
    ----------
    Qiu et al. (2024), Dynamic Neural Response Tuning, Eq. 4.

    Examples
    --------
    >>> import torch
    >>> from companion.functional import raa
    >>> x = torch.tensor([[-1.0, 0.0, 2.0]])
    >>> raa(x, torch.zeros(3), torch.zeros(1))
    tensor([[-0.1587,  0.0000,  1.9545]])
    >>> raa(x, torch.tensor([0.0, 0.0, -1.0]), torch.zeros(1))
    tensor([[-0.0013,  0.0000,  1.0000]])
    """
    _check(x, weight, bias, gate, dim)
    dtype = compute_dtype(x.dtype)
    w, b = cast(weight, dtype), cast(bias, dtype).view(1)
    dim %= x.ndim
    if callable(gate) or x.numel() == 0:
        with without_autocast(x.device.type):
            return _plain(x, w, b, gate, dim)
    return in_order_of_memory(x, dim, lambda ordered, at: FUNCTION(ordered, w, b, gate, at))


@overridable
def arr_loss(x: Tensor, mean: Tensor) -> Tensor:
    r"""How far responses lie from the mean of their class.

    .. math:: \frac{\lVert \mathbf x - \boldsymbol\mu \rVert_1}{d}

    Parameters
    ----------
    x : Tensor
        Responses of d elements along the last dimension, of any device and floating dtype.
    mean : Tensor
        Of a shape that broadcasts to that of ``x``: one mean for all responses, or one for each.

    Returns
    -------
    Tensor
        One number for each response, in the dtype of ``x``; computed in float32 or better.

    Raises
    ------
    TypeError
        If an operand has no floating dtype.
    ValueError
        If the shapes or devices do not fit, or a response has no elements.

    Notes
    -----
    Going down the gradient pulls each element towards the mean with the force 1/d, however far it is; where both are
    equal it is 0. Who keeps the
    means is :class:`companion.ARR`, for which they are constants. Chapter: *DNRT* (``book/mechanisms/dnrt``).

    References
    ----------
    Qiu et al. (2024), Dynamic Neural Response Tuning, Eq. 6.

    Examples
    --------
    >>> import torch
    >>> from companion.functional import arr_loss
    >>> arr_loss(torch.tensor([[0.0, 1.0], [3.0, 1.0]]), torch.tensor([1.0, 1.0]))
    tensor([0.5000, 1.0000])
    """
    check_floating("x", x)
    check_floating("mean", mean)
    if mean.device != x.device:
        raise ValueError(f"mean: got device {mean.device}, allowed is the device of x, {x.device}")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"x: got shape {tuple(x.shape)}, allowed is (..., d) with at least one element")
    fits = mean.ndim <= x.ndim and all(m in (1, n) for m, n in zip(mean.shape[::-1], x.shape[::-1], strict=False))
    if not fits:
        raise ValueError(f"mean: got shape {tuple(mean.shape)}, allowed is one that broadcasts to {tuple(x.shape)}")
    dtype = compute_dtype(x.dtype)
    return cast((cast(x, dtype) - cast(mean, dtype)).abs().mean(-1), x.dtype)


def check_gate(gate: Gate) -> None:
    """Refuse what is neither a known name nor callable."""
    check_activation(gate, "gate", GATES)


def _check(x: Tensor, weight: Tensor, bias: Tensor, gate: Gate, dim: int) -> None:
    for name, operand in (("x", x), ("weight", weight), ("bias", bias)):
        check_floating(name, operand)
        if operand.device != x.device:
            raise ValueError(f"{name}: got device {operand.device}, allowed is the device of x, {x.device}")
    if not -x.ndim <= as_int("dim", dim) < x.ndim:
        raise ValueError(f"dim: got {dim} for x with {x.ndim} dimensions, allowed is an existing one")
    if weight.shape != (x.shape[dim],):
        raise ValueError(
            f"weight: got shape {tuple(weight.shape)}, allowed is ({x.shape[dim]},): one for each element of x along "
            f"dim={dim}{where_else(weight.numel(), x)}"
        )
    if bias.shape not in ((), (1,)):
        raise ValueError(f"bias: got shape {tuple(bias.shape)}, allowed is one number, () or (1,)")
    check_gate(gate)


# --- who computes; the parameters in the dtype of the computation ----------------------------------------------------


def _plain(x: Tensor, weight: Tensor, bias: Tensor, gate: Gate, dim: int) -> Tensor:
    s = partial(_by_function, gate) if callable(gate) else partial(reference.gated, gate=gate)
    return cast(reference.value(cast(x, weight.dtype), weight, bias, s, dim), x.dtype)


def _by_function(gate: Callable[[Tensor], Tensor], u: Tensor) -> Tensor:
    s = gate(u)
    if not isinstance(s, Tensor) or s.shape != u.shape:
        got = f"shape {tuple(s.shape)}" if isinstance(s, Tensor) else type(s).__name__
        raise ValueError(f"gate: returned {got} for shape {tuple(u.shape)}, allowed is a function that keeps it")
    return s


def _compiled(x: Tensor, weight: Tensor, bias: Tensor, gate: str, dim: int) -> Tensor:
    s = partial(reference.compiled_gate, gate=gate)
    return cast(reference.value(cast(x, weight.dtype), weight, bias, s, dim), x.dtype)


def _as_vectors(x: Tensor, dim: int) -> Tensor:
    """(outer, d, inner)."""
    return x.reshape(x.shape[:dim].numel(), x.shape[dim], x.shape[dim + 1 :].numel())


def _forward(x: Tensor, weight: Tensor, bias: Tensor, gate: str, dim: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    vectors, who = _as_vectors(x, dim), choose(x, kernel.OPERATOR)
    if who == "torch":
        y, offsets = reference.forward_in_chunks(vectors, weight, bias, gate)
    else:
        y, offsets = kernel.forward(vectors, weight, bias, GATES.index(gate), simulated=who == "simulator")
    return y.view(x.shape), (offsets,)


def _backward(
    grad: Tensor,
    needs: Sequence[bool],
    saved: tuple[Tensor, ...],
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    gate: str,
    dim: int,
) -> tuple[Tensor | None, ...]:
    (offsets,) = saved
    g, vectors, who = _as_vectors(grad, dim), _as_vectors(x, dim), choose(x, kernel.OPERATOR)
    if who == "torch":
        offsets = offsets.view(vectors.shape[0], 1, -1)
        dx, dweight, dbias = reference.backward_in_chunks(g, vectors, weight, offsets, gate)
    else:
        number = GATES.index(gate)
        dx, dweight, dbias = kernel.backward(g, vectors, weight, offsets.view(-1), number, simulated=who == "simulator")
    return dx.view(x.shape), dweight, dbias, None, None


FUNCTION = differentiable(_plain, _forward, _backward, compiled=_compiled)
