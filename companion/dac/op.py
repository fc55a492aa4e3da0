r"""The public functions ``dac_linear`` and ``dac_conv2d``: their checks, their autograd, and who computes them."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from companion.activations import ACTIVATIONS, check_activation
from companion.dac import kernel, reference
from companion.dac.reference import PAD_ORDERS, Geometry
from companion.operators import (
    as_int,
    cast,
    check_floating,
    choose,
    compute_dtype,
    differentiable,
    exporting,
    image_format,
    opaque,
    overridable,
    transformed,
    without_autocast,
)

#: Of a dense layer as a convolution.
POINT = Geometry((1, 1), (0, 0), (1, 1), 1, False)

#: So many activations φ(b + z) may be held together.
SMALL = 2**20

#: Activations so cheap that the compiler recomputes them: its sums hold no (N, n, m) array, as they do for others.
FUSED = ("relu", "leaky_relu", "identity")


@overridable
def dac_linear(
    z: Tensor, weight: Tensor, bias: Tensor, activation: str | Callable[[Tensor], Tensor] = "relu"
) -> Tensor:
    r"""A dense layer of dendrite-activated connections: a bias and an activation for every pair of input and output.

    .. math:: f_i(z) = \sum_{j=1}^m w_{ij}\,\varphi(b_{ij} + z_j)

    Parameters
    ----------
    z : Tensor
        Input (..., m) of floating dtype, at least one dimension, on any device.
    weight : Tensor
        (n, m).
    bias : Tensor
        (n, m): one bias per connection. Finite.
    activation : str or callable
        :math:`\varphi`: "relu", "leaky_relu" (slope 0.01), "elu", "relu6", "silu", "hardswish", "gelu", "tanh",
        "sigmoid", "softplus", "identity", or any elementwise function of a tensor, each number by itself: of another,
        as softmax is one, the result depends on the size of the batch. It is computed twice, forwards and backwards,
        and must give the same both times: within ``torch.func.functional_call`` a module does, a function that calls
        one does not. It is given float32, or float64 for float64, and may work in place. What it has learned gets its
        gradient. It breaks the graph of a compiler, though not that of torch.export.

    Returns
    -------
    Tensor
        (..., n), of z's dtype. Weight and bias are cast to it first; sums are taken in float32, or float64 for float64.

    Raises
    ------
    TypeError
        If an operand has no floating dtype, or the activation is neither a name nor callable.
    ValueError
        If the shapes or devices do not fit, or the activation's name is unknown.
    RuntimeError
        Backwards, if an activation does not use a parameter that it used forwards.

    Notes
    -----
    The function adds no bias to its output: the biases of the next layer are that. Time grows as N n m, memory does
    not: where the N n m activations are more than 2²⁰, they are never held together, neither forwards nor backwards.
    Only a second derivative, the derivatives of :mod:`torch.func` and of forward mode, what is exported, and compilers
    other than inductor hold them. The slope of ReLU at 0 is 0. NaN comes through. Chapter: *DAC*
    (``book/mechanisms/dac``), equation ``eq-dac-dense``.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, Eq. 4.

    Examples
    --------
    >>> import torch
    >>> from companion.functional import dac_linear
    >>> z = torch.tensor([[1.0, -2.0]])
    >>> weight = torch.tensor([[1.0, 1.0], [2.0, -1.0]])
    >>> bias = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    >>> dac_linear(z, weight, bias)
    tensor([[1., 3.]])
    """
    _check("dac_linear", z, weight, bias, activation)
    if z.ndim == 0:
        raise ValueError("z: got 0 dimensions, allowed is at least one, (..., m)")
    if weight.ndim != 2 or weight.shape[1] != z.shape[-1]:
        raise ValueError(
            f"weight: got shape {tuple(weight.shape)} for z of shape {tuple(z.shape)}, allowed is (n, {z.shape[-1]})"
        )
    if bias.shape != weight.shape:
        raise ValueError(f"bias: got shape {tuple(bias.shape)}, allowed is the shape of weight, {tuple(weight.shape)}")
    rows = z.reshape(-1, z.shape[-1]) if z.numel() else z.reshape(z.shape[:-1].numel(), z.shape[-1])
    return _apply(rows, weight, bias, activation, None).reshape(*z.shape[:-1], weight.shape[0])


@overridable
def dac_conv2d(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    activation: str | Callable[[Tensor], Tensor] = "relu",
    pad_order: str = "after",
) -> Tensor:
    r"""A convolution of dendrite-activated connections: a bias and an activation for every pair of channels.

    .. math:: f_i(z)_{hk} = \sum_{a,b} \sum_{j=1}^m w_{ijab}\,\varphi(b_{ij} + z_{j,h+a,k+b})

    With a bias of the weight's shape, :math:`b_{ij}` becomes :math:`b_{ijab}`: one for every weight.

    Parameters
    ----------
    z : Tensor
        Input (N, m, H, W) or (m, H, W) of floating dtype, on any device.
    weight : Tensor
        (n, m/groups, kh, kw).
    bias : Tensor
        (n, m/groups), one bias per pair of channels, or the shape of ``weight``, one bias per weight. Finite.
    stride, dilation : int or pair of int
        At least 1.
    padding : int or pair of int, or {"same", "valid"}
        At least 0. "valid" is 0; "same" keeps the size of the image, for stride 1 and an even dilation · (k − 1).
    groups : int
        Divides m and n.
    activation : str or callable
        :math:`\varphi`, see :func:`dac_linear`.
    pad_order : {"after", "before"}
        "after": zeros surround the activations, so positions outside the image contribute nothing. "before": zeros
        surround z, so such positions contribute :math:`w\,\varphi(b)`.

    Returns
    -------
    Tensor
        (N, n, H', W') or (n, H', W'), of z's dtype, with the size of torch's conv2d. Weight and bias are cast to this
        dtype first; sums are taken in float32, or float64 for float64.

    Raises
    ------
    TypeError
        If an operand has no floating dtype, the activation is neither a name nor callable, or a number is not an int.
    ValueError
        If shapes or devices do not fit, a number is too small, the kernel is larger than the padded image, the groups
        do not divide, or the activation's name or the pad order is unknown.

    Notes
    -----
    The function adds no bias to its output: the biases of the next layer are that. Where the N n m H W activations are
    more than 2²⁰, and outputs share inputs, they are never held together, neither forwards nor backwards, eager or
    compiled. Only a second derivative and the derivatives of :mod:`torch.func` and of forward mode hold them. The slope
    of ReLU at 0 is 0. NaN comes through. Chapter: *DAC* (``book/mechanisms/dac``), equation ``eq-dac-conv``.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, Eq. 5.

    Examples
    --------
    >>> import torch
    >>> from companion.functional import dac_conv2d
    >>> z, weight = torch.zeros(1, 1, 3, 3), torch.ones(1, 1, 3, 3)
    >>> dac_conv2d(z, weight, torch.ones(1, 1), padding=1)
    tensor([[[[4., 6., 4.],
              [6., 9., 6.],
              [4., 6., 4.]]]])
    """
    _check("dac_conv2d", z, weight, bias, activation)
    if z.ndim not in (3, 4):
        raise ValueError(f"z: got shape {tuple(z.shape)}, allowed is (N, m, H, W) or (m, H, W)")
    if weight.ndim != 4:
        raise ValueError(f"weight: got shape {tuple(weight.shape)}, allowed is (n, m/groups, kh, kw)")
    if bias.shape not in (weight.shape, weight.shape[:2]):
        raise ValueError(
            f"bias: got shape {tuple(bias.shape)}, allowed for weight of shape {tuple(weight.shape)} is "
            f"{tuple(weight.shape[:2])}, a bias per pair of channels, or {tuple(weight.shape)}, a bias per weight"
        )
    geometry = geometry_of(weight.shape[2:], stride, padding, dilation, groups, pad_order)
    if z.shape[-3] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise ValueError(
            f"weight: got shape {tuple(weight.shape)} for z of shape {tuple(z.shape)} and groups={groups}, allowed is "
            "(n, m/groups, kh, kw) where groups divides m and n"
        )
    images = z if z.ndim == 4 else z.unsqueeze(0)
    (h, w), (kh, kw) = z.shape[-2:], weight.shape[2:]
    if 0 in (h, w, kh, kw) or min(reference.output_size(images, weight, geometry)) < 1:
        raise ValueError(
            f"weight: got a kernel of {kh} × {kw} for an image of {h} × {w} with padding {geometry.padding} and "
            f"dilation {geometry.dilation}; allowed is one that is not empty and not larger than the padded image"
        )
    f = _apply(images, weight, bias, activation, geometry)
    return f if z.ndim == 4 else f.squeeze(0)


# --- checks ------------------------------------------------------------------------------------------------------


def _check(name: str, z: Tensor, weight: Tensor, bias: Tensor, activation: Any) -> None:
    for argument, value in (("z", z), ("weight", weight), ("bias", bias)):
        check_floating(argument, value)
        if value.device != z.device:
            raise ValueError(f"{argument}: got device {value.device}, allowed is the device of z, {z.device}")
    check_activation(activation)


def pair(name: str, value: int | Sequence[int], minimum: int) -> tuple[int, int]:
    """One or two integers, NumPy's among them, as two, or a clear error."""
    given: Any = (value, value) if isinstance(value, (int, numbers.Integral)) else value
    if (
        isinstance(value, (bool, str))
        or not isinstance(given, Sequence)
        or len(given) != 2
        or any(isinstance(x, bool) or not isinstance(x, (int, numbers.Integral)) for x in given)
    ):
        raise TypeError(f"{name}: got {value!r}, allowed is an int or a pair of ints")
    if min(given) < minimum:
        raise ValueError(f"{name}: got {value!r}, allowed is at least {minimum}")
    if max(given) >= 2**31:
        raise ValueError(f"{name}: got {value!r}, allowed is less than 2^31")
    return int(given[0]), int(given[1])


def geometry_of(
    kernel: Sequence[int],
    stride: int | Sequence[int],
    padding: int | Sequence[int] | str,
    dilation: int | Sequence[int],
    groups: int,
    pad_order: str,
) -> Geometry:
    """The checked numbers of a convolution."""
    if pad_order not in PAD_ORDERS:
        raise ValueError(f"pad_order: got {pad_order!r}, allowed are {', '.join(map(repr, PAD_ORDERS))}")
    stride, dilation = pair("stride", stride, 1), pair("dilation", dilation, 1)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"padding: got {padding!r}, allowed are 'same', 'valid', an int or a pair of ints")
        around = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, kernel, strict=True)]
        if padding == "same" and (stride != (1, 1) or any(a % 2 for a in around)):
            raise ValueError(
                f"padding: got 'same' with stride {stride} and a kernel of {kernel[0]} × {kernel[1]} with dilation "
                f"{dilation}, allowed is stride 1 and an even dilation · (size − 1)"
            )
        padding = (around[0] // 2, around[1] // 2)
    groups = as_int("groups", groups, minimum=1)
    return Geometry(stride, pair("padding", padding, 0), dilation, groups, pad_order == "before")


# --- who computes ------------------------------------------------------------------------------------------------


def _apply(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: str | Callable[[Tensor], Tensor],
    geometry: Geometry | None,
) -> Tensor:
    operands = z, cast(weight, z.dtype), cast(bias, z.dtype), activation, geometry
    if not transformed():
        return _eager(*operands)
    if callable(activation) and torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active():
        if not exporting():
            return _uncompiled(*operands)
        with without_autocast(z.device.type):  # what is exported is one graph
            return _plain(*operands)
    return FUNCTION(*operands)


def _eager(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: str | Callable[[Tensor], Tensor],
    geometry: Geometry | None,
) -> Tensor:
    activation = _Bound(activation) if isinstance(activation, nn.Module) else activation
    operands = z, weight, bias, activation, geometry
    learned = reference.learned_by(activation, z) if callable(activation) else ()
    if learned is None or (_who(z, activation, geometry) == "torch" and _is_plain(z, weight, bias, geometry)):
        with without_autocast(z.device.type):
            return _plain(*operands)
    return FUNCTION(*operands, captured=learned)


class _Bound:
    """A module with the tensors that it has now, as ``functional_call`` gives it others for a while."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.own = module, _tensors(module)

    def __call__(self, x: Tensor) -> Any:
        now = _tensors(self.module)
        same = all(now[name] is tensor for name, tensor in self.own.items())
        return self.module(x) if same else torch.func.functional_call(self.module, self.own, (x,))


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def dac_with_a_function(*arguments: Any) -> Tensor:
    """What ``activation`` does is not known: it stays outside compiled graphs."""
    return _eager(*arguments)


_uncompiled = _disable_dynamo(dac_with_a_function)


def _who(z: Tensor, activation: str | Callable[[Tensor], Tensor], geometry: Geometry | None) -> str:
    """Who computes: there are kernels for ReLU alone."""
    if activation != "relu":
        return "torch"
    return choose(z, kernel.DENSE if geometry is None else kernel.CONVOLUTION)


def _is_plain(z: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry | None) -> bool:
    """Whether the formula as it stands is the best way: for few activations, and where outputs share no input."""
    if z.numel() == 0 or weight.numel() == 0:
        return False
    if geometry is not None and bias.ndim == 2 and weight.shape[0] == geometry.groups:
        return True
    return z.numel() // max(z.shape[1], 1) * bias.numel() <= SMALL


def _as_images(z: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """A dense layer as a convolution: images of one pixel, a kernel of one position."""
    return z[:, :, None, None], weight[:, :, None, None]


def _plain(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: str | Callable[[Tensor], Tensor],
    geometry: Geometry | None,
) -> Tensor:
    """The differentiable formula, which holds every activation."""
    phi = activation if callable(activation) else ACTIVATIONS[activation]
    dtype = compute_dtype(z.dtype)
    x, w, b = (cast(operand, dtype) for operand in (z, weight, bias))
    f = reference.linear(x, w, b, phi) if geometry is None else reference.conv2d(x, w, b, phi, geometry)
    return cast(f, z.dtype)


def _forward(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: str | Callable[[Tensor], Tensor],
    geometry: Geometry | None,
) -> tuple[Tensor, tuple[()]]:
    return _value(z, weight, bias, activation, geometry), ()


def _value(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: str | Callable[[Tensor], Tensor],
    geometry: Geometry | None,
) -> Tensor:
    if z.numel() == 0 or weight.numel() == 0:
        size = () if geometry is None else reference.output_size(z, weight, geometry)
        return z.new_zeros(z.shape[0], weight.shape[0], *size)
    who = _who(z, activation, geometry)
    if who != "torch":
        simulated = who == "simulator"
        if geometry is None:
            return kernel.linear_forward(z, weight, bias, simulated)
        return kernel.conv_forward(z, weight, bias, geometry, simulated)
    if geometry is None:
        return reference.forward_in_blocks(*_as_images(z, weight), bias, activation, POINT).flatten(1)
    return reference.forward_in_blocks(z, weight, bias, activation, geometry)


def _backward(
    grad: Tensor,
    needs: Sequence[bool],
    saved: tuple[()],
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: str | Callable[[Tensor], Tensor],
    geometry: Geometry | None,
    *learned: Tensor,
) -> tuple[Tensor | None, ...]:
    found = _gradients(grad, z, weight, bias, activation, geometry, (needs[0], needs[1], needs[2]), learned)
    return *found[:3], None, None, *found[3:]


def _gradients(
    grad: Tensor,
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: str | Callable[[Tensor], Tensor],
    geometry: Geometry | None,
    needs: tuple[bool, bool, bool],
    learned: tuple[Tensor, ...] = (),
) -> tuple[Tensor | None, ...]:
    if z.numel() == 0 or weight.numel() == 0:
        empty = (
            torch.zeros(x.shape, dtype=x.dtype, device=x.device) if need else None
            for x, need in zip((z, weight, bias), needs, strict=True)
        )
        return *empty, *map(torch.zeros_like, learned)
    who = _who(z, activation, geometry)
    if who != "torch":
        simulated = who == "simulator"
        if geometry is None:
            return kernel.linear_backward(grad, z, weight, bias, needs, simulated)
        return kernel.conv_backward(grad, z, weight, bias, geometry, needs, simulated)
    if geometry is not None:
        return reference.backward_in_blocks(grad, z, weight, bias, activation, geometry, needs, learned)
    images, kernels = _as_images(z, weight)
    found = reference.backward_in_blocks(
        grad[:, :, None, None], images, kernels, bias, activation, POINT, needs, learned
    )
    return *(None if g is None else g.flatten(1) for g in found[:2]), *found[2:]


# --- for the compiler --------------------------------------------------------------------------------------------


def _arguments(activation: str, geometry: Geometry) -> tuple[Any, ...]:
    """As the operators take them."""
    return (
        *(list(x) for x in (geometry.stride, geometry.padding, geometry.dilation)),
        *(geometry.groups, geometry.before, activation),
    )


def _geometry(
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int, before: bool
) -> Geometry:
    return Geometry((stride[0], stride[1]), (padding[0], padding[1]), (dilation[0], dilation[1]), groups, before)


def _compiled(z: Tensor, weight: Tensor, bias: Tensor, activation: str, geometry: Geometry | None) -> Tensor:
    # what is exported is the formula, which holds every activation: another program has torch's own operators alone
    if exporting():
        return _plain(z, weight, bias, activation, geometry)
    if geometry is None and activation in FUSED:
        return _plain(IN_MEMORY(z), weight, bias, activation, geometry)
    dense = geometry is None
    images, kernels = _as_images(z, weight) if dense else (z, weight)
    result: Tensor = OP(images, kernels, bias, *_arguments(activation, geometry or POINT))
    return result.flatten(1) if dense else result


def _in_memory(z: Tensor) -> Tensor:
    """A copy that no compiler looks into.

    Without it the compiler computes what comes before the layer, a normalisation for example, anew for every output;
    finds that dear; and keeps N n m sums for the derivatives. (A view by strides forces z into memory as well, but in
    its derivative inductor 2.11 fills with zeros what it has just computed.)
    """
    return z.clone(memory_format=torch.contiguous_format)


IN_MEMORY = torch.library.custom_op("companion::in_memory", _in_memory, mutates_args=(), schema="(Tensor z) -> Tensor")
IN_MEMORY.register_fake(_in_memory)
IN_MEMORY.register_autograd(lambda ctx, grad: grad)

FUNCTION = differentiable(_plain, _forward, _backward, compiled=_compiled)


def _op(z: Tensor, weight: Tensor, bias: Tensor, *settings: Any) -> Tensor:
    *numbers, activation = settings
    with without_autocast(z.device.type):
        f = _value(z, weight, bias, activation, _geometry(*numbers))
    return f.contiguous(memory_format=image_format(z))


def _op_fake(z: Tensor, weight: Tensor, bias: Tensor, *settings: Any) -> Tensor:
    size = reference.output_size(z, weight, _geometry(*settings[:-1]))
    return z.new_empty(z.shape[0], weight.shape[0], *size).to(memory_format=image_format(z))


def _op_backward(
    grad: Tensor, z: Tensor, weight: Tensor, bias: Tensor, *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    *numbers, activation, needs = settings
    with without_autocast(z.device.type):
        found = _gradients(grad, z, weight, bias, activation, _geometry(*numbers), tuple(needs))
    dz, dweight, dbias = (
        x.new_empty(0)
        if g is None
        else g.contiguous(memory_format=image_format(x) if x is z else torch.contiguous_format)
        for x, g in zip((z, weight, bias), found, strict=True)
    )
    return dz, dweight, dbias


def _op_backward_fake(
    grad: Tensor, z: Tensor, weight: Tensor, bias: Tensor, *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    needs = settings[-1]
    dz, dweight, dbias = (
        torch.empty(x.shape if need else 0, dtype=x.dtype, device=x.device)
        for x, need in zip((z, weight, bias), needs, strict=True)
    )
    return dz.to(memory_format=image_format(z)) if needs[0] else dz, dweight, dbias


OP, OP_BACKWARD = opaque(
    "companion::dac_conv2d",
    "Tensor z, Tensor weight, Tensor bias",
    "int[2] stride, int[2] padding, int[2] dilation, int groups, bool before, str activation",
    (_op, _op_fake),
    (_op_backward, _op_backward_fake),
)
