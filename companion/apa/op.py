r"""The public functions ``apa`` and ``aglu``: their checks, their autograd, and who computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from companion.apa import kernel, reference
from companion.operators import (
    as_int,
    cast,
    check_floating,
    check_parameter,
    choose,
    compute_dtype,
    differentiable,
    in_order_of_memory,
    on_cpu,
    overridable,
)

Parameter: TypeAlias = float | Tensor


@overridable
def apa(z: Tensor, kappa: Parameter, lam: Parameter, dim: int = 1) -> Tensor:
    r"""Adaptive parametric activation: a sigmoid whose gain and asymmetry are parameters.

    .. math:: \eta(z, \kappa, \lambda) = (1 + \lambda e^{-\kappa z})^{-1/\lambda}

    :math:`\kappa = \lambda = 1` is the sigmoid, :math:`\lambda \to 0` the Gumbel distribution function
    :math:`\exp(-e^{-\kappa z})`, :math:`\lambda \to \infty` the constant 1.

    Parameters
    ----------
    z : Tensor
        Input of any shape, device and floating dtype.
    kappa : float or Tensor
        Gain: a number, a 0-d tensor, or one value per channel, shape ``(z.shape[dim],)``.
    lam : float or Tensor
        Asymmetry λ ≥ 0, same shapes. 0 gives the Gumbel limit and ``inf`` the constant 1. A negative number is
        refused; a negative value in a tensor gives NaN, because the values of tensors are not inspected.
    dim : int
        The dimension of ``z`` along which per-channel parameters lie.

    Returns
    -------
    Tensor
        Shape and dtype of ``z``. float16 and bfloat16 are computed in float32. z = ±∞ gives the limit, NaN gives NaN.

    Raises
    ------
    TypeError
        If ``z`` or a parameter has no floating dtype.
    ValueError
        If λ is a negative number, a parameter has the wrong shape, or lies on another device than ``z``.

    Notes
    -----
    Differentiable twice and more with respect to z, κ and λ. One tensor of z's size is saved: z itself.
    Inside η, the sizes of z and κ count as at most 2⁴⁰ ≈ 1e12 (float64: 2¹⁰⁰ ≈ 1e30), so that nothing overflows on the
    way to a derivative: a z of 1e-20 with a κ of 1e25 is met by a half.
    Chapter: *APA and AGLU* (``book/mechanisms/apa``), equation ``eq-apa-eta``.

    References
    ----------
    Alexandridis, Deng, Nguyen, Luo (2025), Adaptive Parametric Activation, Eq. 5.

    Examples
    --------
    >>> import torch
    >>> from companion.functional import apa
    >>> apa(torch.tensor([-1.0, 0.0, 1.0]), kappa=1.0, lam=1.0)
    tensor([0.2689, 0.5000, 0.7311])
    """
    return _apply(z, kappa, lam, dim, gated=False)


@overridable
def aglu(z: Tensor, kappa: Parameter, lam: Parameter, dim: int = 1) -> Tensor:
    r"""Adaptive generalised linear unit: the input times its own APA.

    .. math:: \operatorname{AGLU}(z, \kappa, \lambda) = z\,(1 + \lambda e^{-\kappa z})^{-1/\lambda}

    :math:`\kappa = \lambda = 1` is SiLU; :math:`\kappa \to \infty` tends to ReLU, :math:`\lambda \to \infty` to the
    identity; :math:`\kappa = 1.702, \lambda = 1` approximates GELU to 0.021.

    Parameters
    ----------
    z : Tensor
        Input of any shape, device and floating dtype.
    kappa : float or Tensor
        Gain: a number, a 0-d tensor, or one value per channel, shape ``(z.shape[dim],)``.
    lam : float or Tensor
        Asymmetry λ ≥ 0, same shapes. 0 gives z times the Gumbel curve, ``inf`` the identity. A negative number is
        refused; a negative value in a tensor gives NaN, because the values of tensors are not inspected.
    dim : int
        The dimension of ``z`` along which per-channel parameters lie.

    Returns
    -------
    Tensor
        Shape and dtype of ``z``. float16 and bfloat16 are computed in float32. z = ±∞ gives the limit, NaN gives NaN.

    Raises
    ------
    TypeError
        If ``z`` or a parameter has no floating dtype.
    ValueError
        If λ is a negative number, a parameter has the wrong shape, or lies on another device than ``z``.

    Notes
    -----
    The derivative with respect to λ printed in the paper (Eq. 8) lacks a term; this is the true one.
    Differentiable twice and more with respect to z, κ and λ. One tensor of z's size is saved: z itself.
    Inside η, the sizes of z and κ count as at most 2⁴⁰ ≈ 1e12 (float64: 2¹⁰⁰ ≈ 1e30), so that nothing overflows on the
    way to a derivative: a z of 1e-20 with a κ of 1e25 is met by a half.
    Chapter: *APA and AGLU* (``book/mechanisms/apa``), equation ``eq-apa-aglu``.

    References
    ----------
    Alexandridis, Deng, Nguyen, Luo (2025), Adaptive Parametric Activation, Eq. 6.

    Examples
    --------
    >>> import torch
    >>> from companion.functional import aglu
    >>> z = torch.tensor([-1.0, 0.0, 1.0])
    >>> torch.allclose(aglu(z, kappa=1.0, lam=1.0), torch.nn.functional.silu(z))
    True
    """
    return _apply(z, kappa, lam, dim, gated=True)


def _apply(z: Tensor, kappa: Parameter, lam: Parameter, dim: int, gated: bool) -> Tensor:
    check_floating("z", z)
    dim = as_int("dim", dim)
    check_parameter("kappa", kappa, z, dim)
    check_parameter("lam", lam, z, dim, minimum=0.0)

    def compute(z: Tensor, dim: int) -> Tensor:
        return FUNCTION(z, _broadcastable(kappa, z, dim), _broadcastable(lam, z, dim), gated)

    return in_order_of_memory(z, dim, compute)


def _broadcastable(parameter: Parameter, z: Tensor, dim: int) -> Parameter:
    """In the dtype of the computation, with the shape that broadcasts against z."""
    if not isinstance(parameter, Tensor):
        return float(parameter)
    parameter = cast(parameter, compute_dtype(z.dtype))
    if parameter.ndim == 0:
        # κ and λ may be one tensor: the compiler of torch 2.11 then loses one of its two gradients, unless it sees two
        return parameter.view(()) if torch.compiler.is_compiling() else parameter
    shape = [1] * z.ndim
    shape[dim] = -1
    return parameter.view(shape)


# --- plain torch -------------------------------------------------------------------------------------------------


def _forward(z: Tensor, kappa: Parameter, lam: Parameter, gated: bool) -> Tensor:
    x = cast(z, compute_dtype(z.dtype))
    return cast(reference.value(x, reference.curve(x, kappa, lam), gated), z.dtype)


def _first(z: Tensor, kappa: Parameter, lam: Parameter, gated: bool) -> reference.First:
    return reference.first(reference.curve(cast(z, compute_dtype(z.dtype)), kappa, lam), gated)


def _reduce(gradient: Tensor, parameter: Parameter) -> Tensor | None:
    """Sum a gradient over everything that the parameter was broadcast along."""
    return gradient.sum_to_size(parameter.shape) if isinstance(parameter, Tensor) else None


def _backward(
    grad: Tensor, z: Tensor, kappa: Parameter, lam: Parameter, gated: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    f = _first(z, kappa, lam, gated)
    g = cast(grad, f.z.dtype)
    return cast(g * f.z, z.dtype), _reduce(g * f.kappa, kappa), _reduce(g * f.lam, lam)


def _double_backward(
    c_z: Tensor | None,
    c_kappa: Tensor | None,
    c_lam: Tensor | None,
    grad: Tensor,
    z: Tensor,
    kappa: Parameter,
    lam: Parameter,
    gated: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The gradients of g, z, κ, λ for the map (g, z, κ, λ) → (g f_z, Σ g f_κ, Σ g f_λ)."""
    c = reference.curve(cast(z, compute_dtype(z.dtype)), kappa, lam)
    f, f2 = reference.first(c, gated), reference.second(c, gated)
    g = cast(grad, c.z.dtype)
    zero = torch.zeros_like(c.z)
    u = zero if c_z is None else cast(c_z, c.z.dtype)
    v = zero if c_kappa is None else c_kappa
    w = zero if c_lam is None else c_lam
    return (
        cast(u * f.z + v * f.kappa + w * f.lam, grad.dtype),
        cast(g * (u * f2.zz + v * f2.z_kappa + w * f2.z_lam), z.dtype),
        _reduce(g * (u * f2.z_kappa + v * f2.kappa_kappa + w * f2.kappa_lam), kappa),
        _reduce(g * (u * f2.z_lam + v * f2.kappa_lam + w * f2.lam_lam), lam),
    )


def _gradients_tangent(
    t_grad: Tensor | None,
    t_z: Tensor | None,
    t_kappa: Tensor | None,
    t_lam: Tensor | None,
    grad: Tensor,
    z: Tensor,
    kappa: Parameter,
    lam: Parameter,
    gated: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The directional derivative of the map (g, z, κ, λ) → (g f_z, Σ g f_κ, Σ g f_λ)."""
    c = reference.curve(cast(z, compute_dtype(z.dtype)), kappa, lam)
    f, f2 = reference.first(c, gated), reference.second(c, gated)
    g = cast(grad, c.z.dtype)
    zero = torch.zeros_like(c.z)
    u, x, k, m = (zero if t is None else cast(t, c.z.dtype) for t in (t_grad, t_z, t_kappa, t_lam))
    return (
        cast(u * f.z + g * (x * f2.zz + k * f2.z_kappa + m * f2.z_lam), z.dtype),
        _reduce(u * f.kappa + g * (x * f2.z_kappa + k * f2.kappa_kappa + m * f2.kappa_lam), kappa),
        _reduce(u * f.lam + g * (x * f2.z_lam + k * f2.kappa_lam + m * f2.lam_lam), lam),
    )


# --- eager: chunks on a CPU, the kernel on a GPU -------------------------------------------------------------


def _forward_eager(z: Tensor, kappa: Parameter, lam: Parameter, gated: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
    who = choose(z, kernel.OPERATOR)
    if who != "torch":
        return kernel.forward(z, kappa, lam, gated, simulated=who == "simulator"), ()
    if _in_chunks(z):
        y, lean = reference.forward_in_chunks(z, kappa, lam, gated)
        return y, (lean,)
    return _forward(z, kappa, lam, gated), ()


def _backward_eager(
    grad: Tensor,
    needs: Sequence[bool],
    saved: tuple[Tensor, ...],
    z: Tensor,
    kappa: Parameter,
    lam: Parameter,
    gated: bool,
) -> tuple[Tensor | None, ...]:
    who = choose(z, kernel.OPERATOR)
    found: tuple[Tensor | None, ...]
    if who != "torch":
        found = kernel.backward(grad, z, kappa, lam, gated, simulated=who == "simulator")
    elif saved:
        learned = needs[1] or needs[2]
        found = reference.backward_in_chunks(grad, z, kappa, lam, gated, bool(saved[0]), learned)
    else:
        return *_backward(grad, z, kappa, lam, gated), None
    return *(g if isinstance(x, Tensor) else None for g, x in zip(found, (z, kappa, lam), strict=True)), None


def _in_chunks(z: Tensor) -> bool:
    return on_cpu(z) and z.dtype != torch.float64 and z.numel() > 0


# --- autograd ----------------------------------------------------------------------------------------------------


def _save(ctx: Any, values: tuple[Any, ...]) -> None:
    """Save the tensors among (…, κ, λ, gated), and keep the numbers."""
    ctx.numbers = [None if isinstance(x, Tensor) else x for x in values]
    tensors = [x for x in values if isinstance(x, Tensor)]
    ctx.save_for_backward(*tensors)
    if not torch.compiler.is_compiling():
        ctx.save_for_forward(*tensors)


def _saved(ctx: Any) -> list[Any]:
    """(…, κ, λ, gated) as they came."""
    tensors = iter(ctx.saved_tensors)
    return [next(tensors) if number is None else number for number in ctx.numbers]


class _Gradients(torch.autograd.Function):
    """(g, z, κ, λ) → the three gradients, in plain torch; its own backward is :func:`_double_backward`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: Tensor, z: Tensor, kappa: Parameter, lam: Parameter, gated: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        return _backward(grad, z, kappa, lam, gated)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _save(ctx, inputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        if all(c is None for c in cotangents):
            return None, None, None, None, None
        return (*_double_backward(*cotangents, *_saved(ctx)), None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
        return _gradients_tangent(*tangents[:4], *_saved(ctx))


class _Compiled(torch.autograd.Function):
    """(z, κ, λ) → η or zη in plain torch, for the compiler, which traces neither jvp nor a second derivative."""

    @staticmethod
    def forward(z: Tensor, kappa: Parameter, lam: Parameter, gated: bool) -> Tensor:
        return _forward(z, kappa, lam, gated)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _save(ctx, inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return (*_backward(grad, *_saved(ctx)), None)


class _Plain(_Compiled):
    """The same, batched, and differentiable forwards and twice."""

    generate_vmap_rule = True

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return (*_Gradients.apply(grad, *_saved(ctx)), None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        z, kappa, lam, gated = _saved(ctx)
        f = _first(z, kappa, lam, gated)
        total = torch.zeros_like(f.z)
        for partial, tangent in zip(f, tangents[:3], strict=True):
            if tangent is not None:
                total = total + partial * tangent
        return cast(total, z.dtype)


FUNCTION = differentiable(_Plain.apply, _forward_eager, _backward_eager, compiled=_Compiled.apply)
