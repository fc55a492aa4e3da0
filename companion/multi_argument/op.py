"""The public functions ``multi_argument`` and ``quadratic_form``: their checks, their autograd, who computes them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from companion.multi_argument import kernel, quadratic, reference
from companion.operators import (
    as_int,
    cast,
    check_floating,
    choose,
    compute_dtype,
    differentiable,
    exporting,
    image_format,
    in_order_of_memory,
    opaque,
    overridable,
    transformed,
    without_autocast,
)

__all__ = ["multi_argument", "quadratic_form"]

Tensors: TypeAlias = Sequence[Tensor] | nn.ParameterList


@overridable
def multi_argument(x: Tensor, weights: Tensors, biases: Tensors, arity: int, dim: int = -1) -> Tensor:
    r"""An activation of several arguments: one small network, the same for every unit, makes one number of them.

    .. math::
        y_i = \mathbf w\,\max(0, W_2 \max(0, W_1 \mathbf a_i + \mathbf b_1) + \mathbf b_2) + b,\qquad
        \mathbf a_i = (x_{ni}, \dots, x_{ni + n - 1})

    Parameters
    ----------
    x : Tensor
        Arguments of all units along ``dim``, those of one unit side by side, of any shape, device and floating dtype.
    weights : sequence of Tensor
        As those of ``torch.nn.Linear``: (h₁, n), (h₂, h₁), …, (1, h). At least one hidden layer, of any width; the
        paper has two of 64.
    biases : sequence of Tensor
        One for each weight: (h₁,), (h₂,), …, (1,).
    arity : int
        n, the arguments of a unit, at least 1. It divides the size of ``x`` along ``dim``.
    dim : int
        Where the units lie: −1 for tokens, 1 for images (N, C, H, W).

    Returns
    -------
    Tensor
        Shape of ``x`` but for ``dim``, where there is one element for each unit; dtype of ``x``. float16 and bfloat16
        are computed in float32, with parameters of whatever dtype; the kernel on tensor cores rounds weights and hidden
        numbers to the dtype of ``x`` and adds up in float32.

    Raises
    ------
    TypeError
        If an operand has no floating dtype, weights or biases are no sequence, or a number is not an int.
    ValueError
        If shapes or devices do not fit, ``dim`` does not exist, or the arity does not divide the size along it.

    Notes
    -----
    Saved are ``x`` and the parameters; the backward pass computes the hidden layers anew, those of a few units at a
    time, so memory grows with ``x`` alone, eager or compiled. Only a second derivative and the derivatives of
    :mod:`torch.func` and of forward mode hold all hidden layers; and where they fit into a cache they are kept. The
    slope of max(0, ·) at 0 is 0. A NaN makes its own unit NaN, and no other. Channels-last images stay as they lie.
    Chapter: *Multi-argument neurons* (``book/mechanisms/multi-argument``).

    References
    ----------
    Kim, Orhan, Yoon, Pitkow (2022), Two-argument activation functions learn soft XOR operations like cortical neurons,
    Section III.

    Examples
    --------
    >>> import torch
    >>> from companion.functional import multi_argument
    >>> weights = [torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), torch.ones(1, 2)]
    >>> biases = [torch.zeros(2), torch.zeros(1)]
    >>> multi_argument(torch.tensor([[3.0, 1.0, 2.0, 7.0]]), weights, biases, arity=2)  # |a₁ − a₂| of two units
    tensor([[2., 5.]])
    """
    _check_units(x, arity, dim)
    _check_network(x, weights, biases, arity)
    dtype = compute_dtype(x.dtype)
    parameters = [cast(p, dtype) for layer in zip(weights, biases, strict=True) for p in layer]
    arity, dim = int(arity), int(dim) % x.ndim
    return in_order_of_memory(x, dim, lambda ordered, at: _network(ordered, arity, at, parameters))


@overridable
def quadratic_form(x: Tensor, coefficients: Tensor, arity: int, dim: int = -1) -> Tensor:
    r"""A quadratic activation of several arguments: what the learned ones look like, with few numbers.

    .. math:: f(x_1, x_2) = c_1 x_1^2 + c_2 x_2^2 + c_3 x_1 x_2 + c_4 x_1 + c_5 x_2 + c_6

    Parameters
    ----------
    x : Tensor
        Arguments of all units along ``dim``, those of one unit side by side, of any shape, device and floating dtype.
    coefficients : Tensor
        ((n + 1)(n + 2)/2,): of the squares, of the products of two different arguments (x₁x₂, x₁x₃, …, x₂x₃, …), of the
        arguments themselves, and a constant.
    arity : int
        n, the arguments of a unit, at least 1. It divides the size of ``x`` along ``dim``.
    dim : int
        Where the units lie: −1 for tokens, 1 for images (N, C, H, W).

    Returns
    -------
    Tensor
        Shape of ``x`` but for ``dim``, where there is one element for each unit; dtype of ``x``. float16 and bfloat16
        are computed in float32.

    Raises
    ------
    TypeError
        If an operand has no floating dtype, or a number is not an int.
    ValueError
        If shapes or devices do not fit, ``dim`` does not exist, or the arity does not divide the size along it.

    Notes
    -----
    Saved are ``x`` and the coefficients. Differentiable twice and more.
    Chapter: *Multi-argument neurons* (``book/mechanisms/multi-argument``).

    References
    ----------
    Kim, Orhan, Yoon, Pitkow (2022), Two-argument activation functions learn soft XOR operations like cortical neurons,
    Section IV-C.

    Examples
    --------
    >>> import torch
    >>> from companion.functional import quadratic_form
    >>> soft_xor = torch.tensor([0.0, 0.0, -1.0, 0.0, 0.0, 0.0])
    >>> quadratic_form(torch.tensor([[1.0, 1.0, 1.0, -1.0]]), soft_xor, arity=2)
    tensor([[-1.,  1.]])
    """
    _check_units(x, arity, dim)
    _check_operand("coefficients", coefficients, x)
    arity, dim = int(arity), int(dim) % x.ndim
    count = quadratic.count_of(arity)
    if coefficients.shape != (count,):
        raise ValueError(
            f"coefficients: got shape {tuple(coefficients.shape)}, allowed is ({count},) for arity {arity}: "
            "(n + 1)(n + 2)/2"
        )
    c = cast(coefficients, compute_dtype(x.dtype))
    return in_order_of_memory(x, dim, lambda ordered, at: FORM(ordered, c, arity, at))


# --- checks ----------------------------------------------------------------------------------------------------------


def _check_operand(name: str, operand: Tensor, x: Tensor) -> None:
    check_floating(name, operand)
    if operand.device != x.device:
        raise ValueError(f"{name}: got device {operand.device}, allowed is the device of x, {x.device}")


def _check_units(x: Tensor, arity: int, dim: int) -> None:
    check_floating("x", x)
    arity = as_int("arity", arity, minimum=1)
    if not -x.ndim <= as_int("dim", dim) < x.ndim:
        raise ValueError(f"dim: got {dim} for x with {x.ndim} dimensions, allowed is an existing one")
    if x.shape[dim] % arity:
        raise ValueError(
            f"x: got {x.shape[dim]} elements along dim={dim}, allowed is a multiple of arity, {arity}: so many make a "
            "unit"
        )


def _check_network(x: Tensor, weights: Tensors, biases: Tensors, arity: int) -> None:
    for name, given in (("weights", weights), ("biases", biases)):
        if isinstance(given, (Tensor, str)) or not isinstance(given, Sequence | nn.ParameterList):
            raise TypeError(f"{name}: got {type(given).__name__}, allowed is a sequence of tensors, one for each layer")
        for each in given:
            _check_operand(name, each, x)
    if len(weights) < 2:
        raise ValueError(f"weights: got {len(weights)}, allowed is a hidden layer at least, and the output's")
    if len(biases) != len(weights):
        raise ValueError(f"biases: got {len(biases)} for {len(weights)} weights, allowed is one for each")
    before = arity
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        last = k == len(weights) - 1
        if weight.ndim != 2 or weight.shape[1] != before or weight.shape[0] == 0 or (last and weight.shape[0] != 1):
            allowed = "1" if last else "h"
            raise ValueError(
                f"weights: got shape {tuple(weight.shape)} at place {k}, allowed is ({allowed}, {before}) there for "
                f"arity {arity}"
            )
        if bias.shape != weight.shape[:1]:
            raise ValueError(
                f"biases: got shape {tuple(bias.shape)} at place {k}, allowed is ({weight.shape[0]},) there: one for "
                "each row of its weights"
            )
        before = weight.shape[0]


# --- who computes; the parameters in the dtype of the computation ----------------------------------------------------


def _network(x: Tensor, arity: int, dim: int, parameters: Sequence[Tensor]) -> Tensor:
    # under autocast autograd's own products on the way back would have 16 bits
    followed = transformed() or torch._C._is_any_autocast_enabled()
    if not followed and _is_small(x, arity, parameters) and _who(x, arity, parameters) == "torch":
        return _plain(x, arity, dim, *parameters)
    return NETWORK(x, arity, dim, *parameters)


def _is_small(x: Tensor, arity: int, parameters: Sequence[Tensor]) -> bool:
    """Whether the hidden layers are a chunk at most: then they are kept."""
    widths = [len(bias) for bias in parameters[1:-1:2]]
    return x.numel() // arity <= reference.units_of_chunk(x, widths)


def _plain(x: Tensor, arity: int, dim: int, *parameters: Tensor) -> Tensor:
    return cast(reference.value(cast(x, parameters[0].dtype), parameters, arity, dim), x.dtype)


def _who(x: Tensor, arity: int, parameters: Sequence[Tensor]) -> str:
    """Who computes the network: no kernel, where none knows it."""
    served = x.numel() > 0 and kernel.serves(x, parameters[::2], arity)
    return choose(x, kernel.NETWORK) if served else "torch"


def _units(x: Tensor, arity: int, dim: int, parameters: Sequence[Tensor]) -> Tensor:
    who = _who(x, arity, parameters)
    if who == "torch":
        return reference.forward_in_chunks(x, parameters, arity, dim)
    return kernel.forward(x, parameters[::2], parameters[1::2], arity, dim, simulated=who == "simulator")


def _gradients(
    grad: Tensor, x: Tensor, arity: int, dim: int, parameters: Sequence[Tensor], wanted: tuple[bool, bool]
) -> tuple[Tensor | None, list[Tensor] | None]:
    """Of x and of the parameters, as far as they are wanted."""
    who = _who(x, arity, parameters)
    if who == "torch":
        return reference.backward_in_chunks(grad, x, parameters, arity, dim, wanted)
    dx, found = kernel.backward(
        grad, x, parameters[::2], parameters[1::2], arity, dim, learned=wanted[1], simulated=who == "simulator"
    )
    return dx if wanted[0] else None, found


def _forward(x: Tensor, arity: int, dim: int, *parameters: Tensor) -> tuple[Tensor, tuple[()]]:
    return _units(x, arity, dim, parameters), ()


def _backward(
    grad: Tensor, needs: Sequence[bool], saved: tuple[()], x: Tensor, arity: int, dim: int, *parameters: Tensor
) -> tuple[Tensor | None, ...]:
    wanted = needs[0], any(needs[3:])
    dx, found = _gradients(grad, x, arity, dim, parameters, wanted)
    return dx, None, None, *([None] * len(parameters) if found is None else found)


def _plain_form(x: Tensor, coefficients: Tensor, arity: int, dim: int) -> Tensor:
    return cast(quadratic.value(cast(x, coefficients.dtype), coefficients, arity, dim), x.dtype)


def _who_forms(x: Tensor, arity: int) -> str:
    return choose(x, kernel.FORM) if x.numel() > 0 and kernel.serves_form(x, arity) else "torch"


def _forward_form(x: Tensor, coefficients: Tensor, arity: int, dim: int) -> tuple[Tensor, tuple[()]]:
    who = _who_forms(x, arity)
    if who != "torch":
        return kernel.form_forward(x, coefficients, dim, simulated=who == "simulator"), ()
    return quadratic.forward_in_chunks(x, coefficients, arity, dim), ()


def _backward_form(
    grad: Tensor, needs: Sequence[bool], saved: tuple[()], x: Tensor, coefficients: Tensor, arity: int, dim: int
) -> tuple[Tensor | None, ...]:
    who = _who_forms(x, arity)
    if who == "torch":
        return *quadratic.backward_in_chunks(grad, x, coefficients, arity, dim, needs), None, None
    return *kernel.form_backward(grad, x, coefficients, dim, simulated=who == "simulator"), None, None


FORM = differentiable(_plain_form, _forward_form, _backward_form)


# --- for the compiler ------------------------------------------------------------------------------------------------


def _compiled(x: Tensor, arity: int, dim: int, *parameters: Tensor) -> Tensor:
    """All parameters in one tensor: an operator's gradient is one for each of its arguments.

    What is exported is the formula, which holds all hidden layers: another program has torch's own operators alone.
    """
    if exporting():
        return _plain(x, arity, dim, *parameters)
    widths = [arity, *(len(bias) for bias in parameters[1::2])]
    result: Tensor = OP(x, torch.cat([p.flatten() for p in parameters]), widths, dim)
    return result


NETWORK = differentiable(_plain, _forward, _backward, compiled=_compiled)


def _apart(flat: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """The parameters that lie in one tensor."""
    shapes = [shape for m, n in itertools.pairwise(widths) for shape in ((n, m), (n,))]
    sizes = [torch.Size(shape).numel() for shape in shapes]
    return [p.view(shape) for p, shape in zip(torch.split(flat, sizes), shapes, strict=True)]


def _size(x: Tensor, arity: int, dim: int) -> list[int]:
    return [*x.shape[:dim], x.shape[dim] // arity, *x.shape[dim + 1 :]]


def _op(x: Tensor, flat: Tensor, widths: Sequence[int], dim: int) -> Tensor:
    parameters = _apart(flat, widths)
    with without_autocast(x.device.type):
        y = in_order_of_memory(x, dim, lambda ordered, at: _units(ordered, widths[0], at, parameters))
    return y.contiguous(memory_format=image_format(x))


def _op_fake(x: Tensor, flat: Tensor, widths: Sequence[int], dim: int) -> Tensor:
    return x.new_empty(_size(x, widths[0], dim)).to(memory_format=image_format(x))


def _op_backward(
    grad: Tensor, x: Tensor, flat: Tensor, widths: Sequence[int], dim: int, needs: Sequence[bool]
) -> tuple[Tensor, Tensor]:
    parameters, wanted = _apart(flat, widths), (needs[0], needs[1])
    with without_autocast(x.device.type):
        dx, found = _gradients(grad, x, widths[0], dim, parameters, wanted)
    return (
        x.new_empty(0) if dx is None else dx.contiguous(memory_format=image_format(x)),
        flat.new_empty(0) if found is None else torch.cat([p.flatten() for p in found]),
    )


def _op_backward_fake(
    grad: Tensor, x: Tensor, flat: Tensor, widths: Sequence[int], dim: int, needs: Sequence[bool]
) -> tuple[Tensor, Tensor]:
    dx = x.new_empty(x.shape).to(memory_format=image_format(x)) if needs[0] else x.new_empty(0)
    return dx, torch.empty(flat.shape if needs[1] else 0, dtype=flat.dtype, device=flat.device)


OP, OP_BACKWARD = opaque(
    "companion::multi_argument",
    "Tensor x, Tensor parameters",
    "int[] widths, int dim",
    (_op, _op_fake),
    (_op_backward, _op_backward_fake),
)
