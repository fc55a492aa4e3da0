"""Parameters and FLOPs: closed forms for one layer, and counted on a whole network.

The convention is that of Metta et al. (2024), section 4. Multiplications and additions both count, so a dense layer
with n outputs and m inputs costs 2mn. The first product of a sum needs no addition, but the sum starts from something:
the two cancel, and an ordinary bias is one more addition per output. Positions in the padding count like others.
Activation functions are free. A layer of dendrite-activated connections adds its biases once per pair of channels and
pixel of the map that it is applied to; the sums are cached for all positions of the kernel.

What the paper leaves open: batch normalisation costs two per element, a scale and a shift, with or without β, as it
does when its statistics are fixed. Sums, differences, products and quotients of two tensors, such as skip connections,
cost one per element. Pooling, softmax and other normalisations are free.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.dac import op as dac_op

__all__ = [
    "Count",
    "LayerCount",
    "conv2d_flops",
    "count",
    "dac_conv2d_flops",
    "dac_linear_flops",
    "linear_flops",
]


# --- closed forms ------------------------------------------------------------------------------------------------


def linear_flops(in_features: int, out_features: int, bias: bool = True) -> int:
    """Return the FLOPs of a dense layer for one input: 2mn, and n for a bias.

    Parameters
    ----------
    in_features, out_features : int
        m and n.
    bias : bool
        Whether each output has one.

    Returns
    -------
    int

    References
    ----------
    Metta et al. (2024), section 4.

    Examples
    --------
    >>> linear_flops(64, 10)
    1290
    """
    return 2 * in_features * out_features + out_features * bias


def dac_linear_flops(in_features: int, out_features: int) -> int:
    """Return the FLOPs of a `DACLinear` for one input: 3mn.

    Parameters
    ----------
    in_features, out_features : int
        m and n.

    Returns
    -------
    int

    References
    ----------
    Metta et al. (2024), section 4.

    Examples
    --------
    >>> dac_linear_flops(64, 10)
    1920
    """
    return 3 * in_features * out_features


def conv2d_flops(
    in_channels: int,
    out_channels: int,
    kernel: tuple[int, int],
    image: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    bias: bool = True,
) -> int:
    """Return the FLOPs of a convolution for one image: 2 n (m/groups) kh kw st, and n st for a bias.

    Parameters
    ----------
    in_channels, out_channels : int
        m and n.
    kernel, image : pair of int
        (kh, kw), and the height and width of the input; the output has s × t pixels.
    stride, padding, dilation : pair of int
        As in ``torch.nn.Conv2d``.
    groups : int
        Divides m and n.
    bias : bool
        Whether each output has one.

    Returns
    -------
    int

    References
    ----------
    Metta et al. (2024), section 4.

    Examples
    --------
    >>> conv2d_flops(16, 32, (3, 3), (32, 32), stride=(2, 2), padding=(1, 1), bias=False)
    2359296
    """
    # s = ⌊(H + 2p − d(k − 1) − 1) / stride⌋ + 1, and t likewise
    pixels = prod((image[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1))
    return out_channels * pixels * (2 * in_channels // groups * prod(kernel) + bias)


def dac_conv2d_flops(
    in_channels: int,
    out_channels: int,
    kernel: tuple[int, int],
    image: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    pad_order: str = "after",
    per_weight: bool = False,
) -> int:
    """Return the FLOPs of a `DACConv2d` for one image: those of a convolution, and the additions of its biases.

    With a bias per pair of channels these are n (m/groups) H W, where H × W is the input, or the padded input with
    ``pad_order="before"``. The paper's section 4 writes the output's s × t, which is the same with stride 1 and a
    padding that keeps the size. With a bias per weight nothing can be cached: n (m/groups) kh kw st.

    Parameters
    ----------
    in_channels, out_channels, kernel, image, stride, padding, dilation, groups
        As in `conv2d_flops`.
    pad_order : {"after", "before"}
        Which of padding and activation comes first.
    per_weight : bool
        One bias for every weight, instead of one for every pair of channels.

    Returns
    -------
    int

    References
    ----------
    Metta et al. (2024), section 4.

    Examples
    --------
    >>> dac_conv2d_flops(16, 32, (3, 3), (32, 32), stride=(2, 2), padding=(1, 1))
    2883584
    """
    ordinary = conv2d_flops(in_channels, out_channels, kernel, image, stride, padding, dilation, groups, bias=False)
    if per_weight:
        return ordinary + ordinary // 2
    margin = padding if pad_order == "before" else (0, 0)
    pixels = prod(size + 2 * around for size, around in zip(image, margin, strict=True))
    return ordinary + out_channels * (in_channels // groups) * pixels


# --- a whole network ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerCount:
    """What one module holds and costs itself, without the modules inside it.

    Parameters
    ----------
    name : str
        Its name in the network; empty for the network itself.
    kind : str
        Its class.
    parameters : int
        A parameter that several modules share is counted with the first.
    flops : int
        For one example.
    """

    name: str
    kind: str
    parameters: int
    flops: int


@dataclass(frozen=True)
class Count:
    """Parameters and FLOPs of a network.

    Parameters
    ----------
    parameters : int
        All of them, trained or not.
    flops : int
        For one example, forwards.
    layers : tuple of LayerCount
        The modules that hold parameters or cost something, in the order of the network. They add up to the totals.
    """

    parameters: int
    flops: int
    layers: tuple[LayerCount, ...]

    def __str__(self) -> str:
        """Return a table, a line per layer and one for the total."""
        lines = [("layer", "kind", "parameters", "FLOPs")]
        lines += [(row.name or "(itself)", row.kind, f"{row.parameters:,}", f"{row.flops:,}") for row in self.layers]
        lines += [("total", "", f"{self.parameters:,}", f"{self.flops:,}")]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            f"{name:<{widths[0]}}  {kind:<{widths[1]}}  {parameters:>{widths[2]}}  {flops:>{widths[3]}}"
            for name, kind, parameters, flops in lines
        )


def count(model: nn.Module, input_shape: Sequence[int]) -> Count:
    """Count the parameters and the FLOPs of a network, by running it once.

    What runs is a copy in evaluation mode, on tensors that have shapes but hold no numbers. Only if the network decides
    by the values of tensors does it run on zeros. The network itself is not touched. Functional calls count like
    modules, with whatever module makes them. `DACLinear`, `DACConv2d` and their functions count as one layer each,
    however they are computed. The convention is at the head of the module :mod:`companion.counting`; torch's
    ``FlopCounterMode`` does the counting, with formulas that add what it leaves out: biases, batch normalisation
    and elementwise arithmetic.

    Parameters
    ----------
    model : nn.Module
        Any network that takes one floating tensor.
    input_shape : sequence of int
        Of one example, such as (C, H, W), without the batch.

    Returns
    -------
    Count
        Its ``str`` is a table.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, section 4. Chapter:
    *DAC* (``book/mechanisms/dac``).

    Examples
    --------
    >>> print(count(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (4,)))
    layer  kind    parameters  FLOPs
    0      Linear          15     27
    2      Linear           8     14
    total                  23     41
    """
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
        UnsupportedFakeTensorException,
    )

    impossible = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)
    mode = FakeTensorMode()
    try:
        # deepcopy takes for copied what is in its memory: the copy holds no numbers.
        tensors = [*model.parameters(), *model.buffers()]
        replica = copy.deepcopy(model, {id(tensor): _without_numbers(tensor, mode) for tensor in tensors}).eval()
        with mode:
            flops = _run(replica, input_shape)
    except impossible:
        flops = _run(copy.deepcopy(model).eval(), input_shape)
    seen: set[int] = set()
    layers = []
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        seen.update(map(id, own))
        parameters = sum(p.numel() for p in own)
        if parameters or flops[name]:
            layers.append(LayerCount(name, type(module).__name__, parameters, flops[name]))
    return Count(sum(row.parameters for row in layers), sum(row.flops for row in layers), tuple(layers))


def _without_numbers(tensor: Tensor, mode: Any) -> Tensor:
    fake: Tensor = mode.from_tensor(tensor.detach())
    return nn.Parameter(fake, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else fake


def _run(model: nn.Module, input_shape: Sequence[int]) -> Counter[str]:
    """The FLOPs of each module for one example."""
    from torch.utils.flop_counter import FlopCounterMode, flop_registry

    flops: Counter[str] = Counter()
    running = [("", model)]

    def booked(formula: Callable[..., int]) -> Callable[..., int]:
        """The formula, with the result booked on the module that is running."""

        def counted(*args: Any, **kwargs: Any) -> int:
            if any(_is_activation(module) for _, module in running):
                return 0
            result = formula(*args, **kwargs)
            flops[running[-1][0]] += result
            return result

        # FlopCounterMode gives tensors to such a formula, not their shapes
        counted._get_raw = True  # type: ignore[attr-defined]
        return counted

    formulas = {operator: booked(formula) for operator, formula in {**flop_registry, **_formulas()}.items()}
    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda module, _, name=name: running.append((name, module))))
        hooks.append(module.register_forward_hook(lambda *_: running.pop() and None, always_call=True))
    example = next((p for p in (*model.parameters(), *model.buffers()) if p.is_floating_point()), torch.empty(0))
    x = torch.zeros(1, *input_shape, dtype=example.dtype, device=example.device)
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    fused_attention = torch.backends.mha.get_fastpath_enabled()
    # the fused operator of torch's attention modules has no formula
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), counter, _dac_as_one_layer(running, flops):
            model(x)
    finally:
        torch.backends.mha.set_fastpath_enabled(fused_attention)
        for hook in hooks:
            hook.remove()
    return flops


def _is_activation(module: nn.Module) -> bool:
    """Whether a module is an activation function, which costs nothing however it is computed."""
    from companion.apa.layers import AGLU, APA
    from companion.baselines import Gumbel
    from companion.layeract.layers import LayerAct

    own = type(module).__module__ == "torch.nn.modules.activation" and not isinstance(module, nn.MultiheadAttention)
    return own or isinstance(module, (AGLU, APA, Gumbel, LayerAct))


@contextmanager
def _dac_as_one_layer(running: list[tuple[str, nn.Module]], flops: Counter[str]) -> Iterator[None]:
    """Let the DAC functions stand for themselves: a product or convolution, and the additions of the biases."""

    def stand_in(z: Tensor, weight: Tensor, bias: Tensor, activation: Any, geometry: Any) -> Tensor:
        if geometry is None:
            flops[running[-1][0]] += z.shape[0] * bias.numel()
            return F.linear(z, weight.to(z.dtype))
        stride, padding, dilation, groups, before = geometry
        out = F.conv2d(z, weight.to(z.dtype), None, stride, padding, dilation, groups)
        pixels = prod(size + 2 * around * before for size, around in zip(z.shape[2:], padding, strict=True))
        flops[running[-1][0]] += z.shape[0] * bias.numel() * (pixels if bias.ndim == 2 else prod(out.shape[2:]))
        return out

    computed = dac_op._apply
    dac_op._apply = stand_in
    try:
        yield
    finally:
        dac_op._apply = computed


def _formulas() -> dict[Any, Callable[..., int]]:
    """What FlopCounterMode leaves out, by the operator."""
    from torch.utils.flop_counter import flop_registry

    aten = torch.ops.aten

    def with_bias(operator: Any, bias: int) -> Callable[..., int]:
        def formula(*args: Any, out_val: Tensor, **kwargs: Any) -> int:
            products: int = flop_registry[operator](*args, out_val=out_val, **kwargs)
            return products + (0 if args[bias] is None else out_val.numel())

        return formula

    def scale_and_shift(x: Tensor, *args: Any, out_val: Any, **kwargs: Any) -> int:
        return 2 * x.numel()

    def elementwise(x: Any, y: Any, *args: Any, out_val: Tensor, **kwargs: Any) -> int:
        # a Python number comes as a tensor of no dimension; indices and masks are no floating point operations
        both = all(isinstance(operand, Tensor) and operand.ndim > 0 for operand in (x, y))
        return out_val.numel() if both and out_val.is_floating_point() else 0

    return {
        aten.addmm: with_bias(aten.addmm, 0),
        aten.baddbmm: with_bias(aten.baddbmm, 0),
        aten.convolution: with_bias(aten.convolution, 2),
        # older versions of torch know the formula, but not that it is this operator's too
        aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[aten._scaled_dot_product_flash_attention],
        **{
            getattr(aten, name): scale_and_shift
            for name in (
                "native_batch_norm",
                "_native_batch_norm_legit",
                "_native_batch_norm_legit_no_training",
                "_batch_norm_with_update",
                "_batch_norm_no_update",
                "cudnn_batch_norm",
            )
        },
        **{getattr(aten, name + end): elementwise for name in ("add", "sub", "mul", "div") for end in ("", "_")},
    }
