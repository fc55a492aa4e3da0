"""The binding of ``dac_linear.cu``, ``dac_conv.cu`` and ``dac_conv3x3*.cu``: tiles, parts of sums, fragments."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from companion.cuda.launch import Kernels
from companion.cuda.scalars import int32, int64, uint32
from companion.dac.reference import Geometry, output_size
from companion.operators import KERNEL_DTYPES, Operator

#: Rows, columns and threads of the tiles in ``dac.cuh``.
TILES = {
    "forward": {"wide": (128, 128, 256), "narrow": (128, 32, 128)},
    "input": {"wide": (128, 64, 256), "narrow": (128, 32, 128)},
    "weight": {"wide": (64, 64, 256), "narrow": (32, 64, 128)},
}
DEPTH_STEP = 8
FINISH_THREADS = 128
#: So many blocks keep a large GPU busy. The number depends on no GPU, so that sums are the same on every one.
ENOUGH_BLOCKS = 256
#: Terms that a part of a sum over samples has at least.
LEAST_TERMS = 256
#: Compute capability times ten from which on mma.m16n8k16 is there.
TENSOR_CORES = 80
#: What is counted in 32 bits, with a sign, has one bit less for the borders of tiles and pictures.
BITS = 30


def _kernels(name: str) -> Kernels:
    names = [
        f"dac_{name}_{kernel}_{suffix}"
        for kernel in ("finish", *(f"{what}_{width}" for what in TILES for width in ("wide", "narrow")))
        for suffix in KERNEL_DTYPES.values()
    ]
    return Kernels(Path(__file__).with_name(f"dac_{name}.cu"), names)


LINEAR = _kernels("linear")
CONV = _kernels("conv")
CONV3X3 = Kernels(
    Path(__file__).with_name("dac_conv3x3.cu"),
    [f"dac_conv3x3_forward_{suffix}" for suffix in ("f16", "bf16")],
    lowest=TENSOR_CORES,
)
#: Pixels that a block of ``dac_conv3x3.cu`` computes, outputs, threads.
PIXELS, OUTPUTS_AT_ONCE, CONV3X3_THREADS = 336, 2, 224
CONV3X3_BACKWARD = Kernels(
    Path(__file__).with_name("dac_conv3x3_backward.cu"),
    [f"dac_conv3x3_backward_{what}_{suffix}" for what in ("input", "weight") for suffix in ("f16", "bf16")],
    lowest=TENSOR_CORES,
)
DENSE = Operator("dac_linear", [LINEAR], "companion.dac.proof:dense")
CONVOLUTION = Operator("dac_conv2d", [CONV, CONV3X3, CONV3X3_BACKWARD], "companion.dac.proof:convolution")
#: Of ``dac_conv3x3_backward.cu``: warps of a block, channels of a warp; for dz pixels of a warp and records that a
#: block holds of g; for dw outputs of a warp, and outputs × pixels that a block holds of g.
WARPS, WARP_CHANNELS, WARP_PIXELS, RECORDS, WARP_OUTPUTS, STAGED = 8, 32, 48, 2432, 2, 1024
#: Flat pixels that a part of the sums over them has at least, and at most: tensor cores cut what they add, so long sums
#: of one sign drift.
LEAST_PIXELS, MOST_PIXELS = 2**11, 2**16


class Tiling(NamedTuple):
    """Which tiles compute a matrix of results."""

    kind: str  # "wide" or "narrow"
    threads: int
    tiles: int


def tiling(what: str, rows: int, columns: int) -> Tiling:
    """Wide tiles, unless too few of them or too empty: then narrow ones."""

    def of(kind: str) -> tuple[Tiling, int]:
        height, width, threads = TILES[what][kind]
        tiles = math.ceil(rows / height) * math.ceil(columns / width)
        return Tiling(kind, threads, tiles), tiles * height * width

    (wide, wide_work), (narrow, narrow_work) = of("wide"), of("narrow")
    return wide if wide.tiles >= ENOUGH_BLOCKS // 2 and wide_work <= 1.3 * narrow_work else narrow


def parts_of(terms: int, tiles: int) -> tuple[int, int]:
    """Into how many parts a sum over samples is cut, and of how many terms each."""
    wanted = min(math.ceil(ENOUGH_BLOCKS / tiles), math.ceil(terms / LEAST_TERMS))
    wanted = max(wanted, math.ceil(terms / 2**30))
    length = math.ceil(math.ceil(terms / wanted) / DEPTH_STEP) * DEPTH_STEP
    return math.ceil(terms / length), length


def linear_forward(z: Tensor, weight: Tensor, bias: Tensor, simulated: bool) -> Tensor:
    """f_si = Σ_j w_ij relu(b_ij + z_sj).

    Parameters
    ----------
    z : Tensor
        (N, m), float32, float16 or bfloat16.
    weight, bias : Tensor
        (n, m), of the same dtype.
    simulated : bool
        Whether the simulator runs the kernels.

    Returns
    -------
    Tensor
        (N, n).
    """
    z, weight, bias = (x.contiguous() for x in (z, weight, bias))
    (N, m), n = z.shape, weight.shape[0]
    _check_length(max(m, n))
    f = z.new_empty(N, n)
    plan = tiling("forward", N, n)
    _launch(LINEAR, "forward", plan, 1, [z, weight, bias, f, int64(N), int32(n), int32(m)], z, simulated)
    return f


def linear_backward(
    grad: Tensor, z: Tensor, weight: Tensor, bias: Tensor, needs: tuple[bool, bool, bool], simulated: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of z, weight and bias, as far as they are needed, from ∂L/∂f.

    Parameters
    ----------
    grad : Tensor
        (N, n).
    z, weight, bias, simulated
        As for :func:`linear_forward`.
    needs : tuple of bool
        Which of the three are wanted.

    Returns
    -------
    tuple of Tensor or None
    """
    grad, z, weight, bias = (x.contiguous() for x in (grad, z, weight, bias))
    (N, m), n = z.shape, weight.shape[0]
    _check_length(max(m, n))
    sizes = [int64(N), int32(n), int32(m)]
    dz = d_weight = d_bias = None
    if needs[0]:
        dz = torch.empty_like(z)
        _launch(LINEAR, "input", tiling("input", N, m), 1, [grad, z, weight, bias, dz, *sizes], z, simulated)
    if needs[1] or needs[2]:
        plan = tiling("weight", n, m)
        parts, length = parts_of(N, plan.tiles)
        partial = torch.empty(parts, 2, n, m, dtype=torch.float32, device=z.device)
        arguments = [grad, z, bias, partial, *sizes, int32(length)]
        _launch(LINEAR, "weight", plan, parts, arguments, z, simulated)
        d_weight, d_bias = _finish(LINEAR, partial, weight, bias, simulated)
    return dz, d_weight if needs[1] else None, d_bias if needs[2] else None


def conv_forward(z: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry, simulated: bool) -> Tensor:
    """f_i = Σ_jp w_ijp relu(b_ij + z_j) at every position of a kernel over a picture.

    On tensor cores where :func:`suits_tensor_cores`.

    Parameters
    ----------
    z : Tensor
        (N, m, H, W), float32, float16 or bfloat16.
    weight : Tensor
        (n, m/groups, kh, kw), of the same dtype.
    bias : Tensor
        Like weight, or (n, m/groups).
    geometry : Geometry
        Strides, padding, dilation, groups, the order of padding.
    simulated : bool
        Whether the simulator runs the kernels.

    Returns
    -------
    Tensor
        (N, n, H', W').
    """
    if suits_tensor_cores(z, weight, bias, geometry):
        return _conv3x3_forward(z, weight, bias, geometry, simulated)
    z, weight, bias = (x.contiguous() for x in (z, weight, bias))
    N, n = z.shape[0], weight.shape[0]
    height, width = output_size(z, weight, geometry)
    f = z.new_empty(N, n, height, width)
    sizes = _sizes(z, weight, bias, geometry)
    plan = tiling("forward", N * height * width, n // geometry.groups)
    _launch(CONV, "forward", plan, geometry.groups, [z, weight, bias, f, *sizes], z, simulated)
    return f


def conv_backward(
    grad: Tensor,
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    geometry: Geometry,
    needs: tuple[bool, bool, bool],
    simulated: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of z, weight and bias, as far as they are needed, from ∂L/∂f.

    On tensor cores where :func:`suits_tensor_cores` and rows are not too long, see :func:`flat_pixels`.

    Parameters
    ----------
    grad : Tensor
        (N, n, H', W').
    z, weight, bias, geometry, simulated
        As for :func:`conv_forward`.
    needs : tuple of bool
        Which of the three are wanted.

    Returns
    -------
    tuple of Tensor or None
    """
    flat = flat_pixels(z, weight, geometry) if suits_tensor_cores(z, weight, bias, geometry) else None
    if flat is not None:
        return _conv3x3_backward(grad, z, weight, bias, geometry, flat, needs, simulated)
    grad, z, weight, bias = (x.contiguous() for x in (grad, z, weight, bias))
    groups = geometry.groups
    sizes = _sizes(z, weight, bias, geometry)
    dz = d_weight = d_bias = None
    if needs[0]:
        dz = torch.empty_like(z)
        plan = tiling("input", z.numel() // z.shape[1], z.shape[1] // groups)
        _launch(CONV, "input", plan, groups, [grad, z, weight, bias, dz, *sizes], z, simulated)
    if needs[1] or needs[2]:
        plan = tiling("weight", weight.shape[0] // groups, weight[0].numel())
        parts, length = parts_of(grad.numel() // grad.shape[1], plan.tiles * groups)
        partial = torch.empty(parts, 2, *weight.shape, dtype=torch.float32, device=z.device)
        arguments = [grad, z, bias, partial, *sizes, int32(length)]
        _launch(CONV, "weight", plan, groups * parts, arguments, z, simulated)
        d_weight, d_bias = _finish(CONV, partial, weight, bias, simulated)
    return dz, d_weight if needs[1] else None, d_bias if needs[2] else None


def suits_tensor_cores(z: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> bool:
    """Whether ``dac_conv3x3.cu`` computes this convolution: 16 bits, 3 × 3, stride 1, a bias for each pair."""
    shape = (weight.shape[2:], geometry.stride, geometry.dilation, geometry.groups, bias.ndim)
    if z.dtype == torch.float32 or shape != ((3, 3), (1, 1), (1, 1), 1, 2):
        return False
    outputs = math.prod(output_size(z, weight, geometry))
    if max(len(z) * outputs, weight.numel()) >= 2**BITS or len(z) * _cut(z, weight, geometry).pixels >= 2**BITS:
        return False
    return not z.is_cuda or torch.cuda.get_device_capability(z.device) >= divmod(TENSOR_CORES, 10)


def _conv3x3_forward(z: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry, simulated: bool) -> Tensor:
    """The convolution on tensor cores: pixels flat, and as many channels as a multiple of 16."""
    (N, m, height, width), n = z.shape, weight.shape[0]
    out_height, out_width = output_size(z, weight, geometry)
    cut = _cut(z, weight, geometry)
    constant = (weight.float() * bias.float()[:, :, None, None]).sum(1)
    f = z.new_empty(N, n, out_height, out_width)
    pixels = _cut_pixels(z, cut, geometry.padding)
    sizes = (N, pixels.shape[1], 16 * len(pixels), height, width, n, out_height, out_width, *geometry.padding)
    minus_bias = by_outputs(F.pad(-bias, (0, -m % 16)).view(n, -1, 16))
    arguments: list[Any] = [pixels, fragments(weight), minus_bias, constant, f]
    arguments += [int32(size) for size in (*sizes, int(geometry.before), cut.columns)]
    for divisor in (cut.pitch, cut.rows, cut.cuts):
        arguments += [int32(divisor), uint32(magic(divisor))]
    block_outputs = outputs_of_a_block(n, cut.blocks(N))
    plan = Tiling("", CONV3X3_THREADS, cut.blocks(N) * math.ceil(n / block_outputs))
    _launch(CONV3X3, "forward", plan, 1, [*arguments, int32(block_outputs)], z, simulated)
    return f


def outputs_of_a_block(outputs: int, pixel_blocks: int) -> int:
    """How many outputs a block of ``dac_conv3x3.cu`` computes: up to 16, while there are enough blocks."""
    chosen = OUTPUTS_AT_ONCE
    while chosen < 16 and pixel_blocks * math.ceil(outputs / (2 * chosen)) >= 4 * ENOUGH_BLOCKS:
        chosen *= 2
    return chosen


def _cut(z: Tensor, weight: Tensor, geometry: Geometry) -> Cut:
    height, width = z.shape[2:]
    return cut_of((height, width), output_size(z, weight, geometry), geometry.padding)


def _cut_pixels(z: Tensor, cut: Cut, padding: tuple[int, int]) -> Tensor:
    """(N, m, height, width) → (m/16, places, 16), padded and cut, m rounded up."""
    N, m, height, width = z.shape
    over = (cut.cuts - 1) * cut.columns + cut.pitch
    padded = F.pad(z, (padding[1], over - padding[1] - width, padding[0], cut.rows - padding[0] - height, 0, -m % 16))
    windows = padded.unfold(3, cut.pitch, cut.columns if cut.cuts > 1 else 1)  # N, m, rows, cuts, pitch
    places = z.new_empty(math.ceil(m / 16), (cut.blocks(N) - 1) * cut.useful + PIXELS, 16)
    pictures = places[:, : N * cut.pixels].view(-1, N, cut.cuts, cut.rows, cut.pitch, 16)
    pictures.copy_(windows.view(N, -1, 16, cut.rows, cut.cuts, cut.pitch).permute(1, 0, 4, 3, 5, 2))
    places[:, N * cut.pixels :] = 0
    return places


class Cut(NamedTuple):
    """Into how many pictures ``dac_conv3x3.cu`` cuts a picture, and how their pixels lie."""

    cuts: int
    columns: int  # of outputs in each
    pitch: int  # places of a row
    rows: int

    @property
    def pixels(self) -> int:
        """Flat pixels of a sample."""
        return self.cuts * self.rows * self.pitch

    @property
    def useful(self) -> int:
        """Pixels of a block that see all that they need."""
        return PIXELS - 2 * self.pitch - 2

    def blocks(self, samples: int) -> int:
        """How many blocks the pixels of so many samples have."""
        return math.ceil(samples * self.pixels / self.useful)


@functools.cache
def cut_of(size: tuple[int, int], out: tuple[int, int], padding: tuple[int, int]) -> Cut:
    """The cut that computes the fewest pixels. A whole picture needs no pads on the right, those on the left serve."""
    rows = max(size[0] + padding[0], out[0])

    def cut_into(cuts: int) -> Cut:
        columns = math.ceil(out[1] / cuts)
        return Cut(cuts, columns, max(size[1] + padding[1], out[1]) if cuts == 1 else columns + 2, rows)

    all_cuts = [cut_into(cuts) for cuts in range(1, math.ceil(out[1] / 8) + 1)]
    return min((cut for cut in all_cuts if cut.useful > 0), key=lambda cut: cut.pixels / cut.useful)


def fragments(weight: Tensor) -> Tensor:
    """Weights (n, m, 3, 3) as ``mma.m16n8k16`` takes them for its first factor, positions of the kernel × inputs.

    Returns
    -------
    Tensor
        (n/2, m/16, 2 outputs, 32 lanes, 4 registers, 2), n and m rounded up; see ``multiply_add`` in ``common.cuh``.
    """
    n, m = weight.shape[:2]
    blocks = math.ceil(m / 16)
    padded = F.pad(weight.reshape(n, m, 9), (0, 7, 0, 16 * blocks - m))  # 16 positions
    # input = 16 block + 4 place + 2 h + e, position = 8 r + group
    split = padded.view(n, blocks, 4, 2, 2, 2, 8)  # n, block, place, h, e, r, group
    return by_outputs(split.permute(0, 1, 6, 2, 3, 5, 4).reshape(n, blocks, 32, 4, 2))


def by_outputs(x: Tensor) -> Tensor:
    """(n, blocks, …) → (n/2, blocks, 2 outputs, …), n rounded up: what a block of ``dac_conv3x3.cu`` reads in a row."""
    padded = F.pad(x, (0, 0) * (x.ndim - 1) + (0, -len(x) % OUTPUTS_AT_ONCE))
    return padded.view(-1, OUTPUTS_AT_ONCE, *x.shape[1:]).transpose(1, 2).contiguous()


class Flat(NamedTuple):
    """Pixels of all samples in one row, as ``dac_conv3x3_backward.cu`` has them."""

    pitch: int  # places of a row of a picture
    rows: int  # of a sample
    length: int  # places of all

    @property
    def lead(self) -> int:
        """Places before the first one, for what the kernel shifts over the border."""
        return 2 * self.pitch + 2


def flat_pixels(z: Tensor, weight: Tensor, geometry: Geometry) -> Flat | None:
    """How the pixels lie for the gradients on tensor cores; None where rows, or all of
    them together, are too long for it.

    A row is as long as the picture with its left-hand pads, and as the output; a sample is as high as the picture
    with its top pads, and as the output. The length is even, and such that three rows lie in different banks of shared
    memory.
    """
    N, _, height, width = z.shape
    out_height, out_width = output_size(z, weight, geometry)
    pitch = max(width + geometry.padding[1], out_width)
    while pitch % 16 not in (4, 6, 10, 12):
        pitch += 1
    rows = max(height + geometry.padding[0], out_height)
    # the last output meets inputs so far behind its own place
    length = math.ceil((N * rows * pitch + 2 * pitch + 2) / 32) * 32
    return Flat(pitch, rows, length) if WARP_PIXELS + 2 * pitch <= RECORDS // 2 and length < 2**26 else None


def _conv3x3_backward(
    grad: Tensor,
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    geometry: Geometry,
    flat: Flat,
    needs: tuple[bool, bool, bool],
    simulated: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients on tensor cores: z and g with channels first and pixels flat."""
    (N, m, height, width), n = z.shape, weight.shape[0]
    out_height, out_width = output_size(z, weight, geometry)
    bias = bias.contiguous()
    outside = 0.0 if geometry.before else torch.finfo(z.dtype).min  # the latter is active with no bias
    z_flat = _flattened(z, flat, geometry.padding, 0, outside)
    g_flat = _flattened(grad, flat, (0, 0), flat.lead, 0.0)
    sizes = (N, m, n, height, width, out_height, out_width, *geometry.padding, *flat)
    numbers = [int32(size) for size in sizes]
    dz = d_weight = d_bias = None
    if needs[0]:
        dz = torch.empty_like(z, memory_format=torch.contiguous_format)
        pixel_warps, at_once = input_plan(m, flat.pitch)
        blocks = math.ceil(flat.length / (pixel_warps * WARP_PIXELS))
        blocks *= math.ceil(m / (WARPS // pixel_warps * WARP_CHANNELS))
        arguments = [g_flat, z_flat, row_fragments(weight, bias), dz, *numbers, int32(pixel_warps)]
        plan = Tiling("", WARPS * 32, blocks)
        _launch(CONV3X3_BACKWARD, "input", plan, 1, [*arguments, int32(at_once)], z, simulated)
    if needs[1] or needs[2]:
        channel_warps = min(4, 2 ** (math.ceil(m / WARP_CHANNELS) - 1).bit_length())
        tiles = math.ceil(n / (WARPS // channel_warps * WARP_OUTPUTS)) * math.ceil(m / (channel_warps * WARP_CHANNELS))
        parts, length = pixel_parts(flat.length, tiles)
        partial = torch.empty(parts, 2, n, m, 3, 3, dtype=torch.float32, device=z.device)
        arguments = [g_flat, z_flat, bias, partial, *numbers, int32(channel_warps), int32(length)]
        _launch(CONV3X3_BACKWARD, "weight", Tiling("", WARPS * 32, tiles), parts, arguments, z, simulated)
        d_weight, d_bias = _finish(CONV, partial, weight.contiguous(), bias, simulated)
    return dz, d_weight if needs[1] else None, d_bias if needs[2] else None


def input_plan(channels: int, pitch: int) -> tuple[int, int]:
    """For dz: how many warps of a block lie side by side, and for how many outputs their records are made at once."""
    pixel_warps = max(2, WARPS // 2 ** (math.ceil(channels / WARP_CHANNELS) - 1).bit_length())
    while pixel_warps > 1 and pixel_warps * WARP_PIXELS + 2 * pitch > RECORDS // 2:
        pixel_warps //= 2
    return pixel_warps, min(WARPS, RECORDS // (pixel_warps * WARP_PIXELS + 2 * pitch))


def pixel_parts(length: int, tiles: int) -> tuple[int, int]:
    """Into how many parts the flat pixels are cut for dw, and of how many each."""
    wanted = min(math.ceil(ENOUGH_BLOCKS / tiles), math.ceil(length / LEAST_PIXELS))
    wanted = max(wanted, math.ceil(length / MOST_PIXELS))
    part = math.ceil(length / wanted / STAGED) * STAGED
    return math.ceil(length / part), part


def _flattened(x: Tensor, flat: Flat, padding: tuple[int, int], lead: int, outside: float) -> Tensor:
    """(N, channels, height, width) → (channels, lead + length), with pads."""
    N, channels, height, width = x.shape
    places = x.new_full((channels, lead + flat.length), outside)
    pictures = places[:, lead : lead + N * flat.rows * flat.pitch].view(channels, N, flat.rows, flat.pitch)
    pictures[:, :, padding[0] :, padding[1] :][:, :, :height, :width] = x.transpose(0, 1)
    return places


def row_fragments(weight: Tensor, bias: Tensor) -> Tensor:
    """Weights (n, m, 3, 3) and biases as ``mma.m16n8k16`` takes them for its first factor, inputs × positions.

    Returns
    -------
    Tensor
        (n, m/16, 32 lanes, 4 registers, 2), m rounded up. Lane place y has the weights of row y of the kernel, from
        right to left, and then -b.
    """
    n, m = bias.shape
    blocks = math.ceil(m / 16)
    padded = weight.new_zeros(n, 16 * blocks, 4, 4)
    padded[:, :m, :3, :3] = weight.flip(3)
    padded[:, :m, :, 3] = -bias[:, :, None]
    # input = 16 block + 8 r + group; four terms = 2 h + e
    split = padded.view(n, blocks, 2, 8, 4, 2, 2)  # n, block, r, group, place, h, e
    return split.permute(0, 1, 3, 4, 5, 2, 6).reshape(n, blocks, 32, 4, 2).contiguous()


def _sizes(z: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> list[Any]:
    """What every kernel of a convolution is told, in the order of ``Convolution`` in dac_conv.cu."""
    (N, m, height, width), (n, _, *kernel), groups = z.shape, weight.shape, geometry.groups
    out = output_size(z, weight, geometry)
    positions = N * max(height * width, math.prod(out))
    reach = max(d * max(k - 1, 1) for d, k in zip(geometry.dilation, kernel, strict=True))
    for name, what, count, bits in (
        ("z", "positions in a channel of all samples, in or out", positions, BITS),
        ("z", "channels of all samples, in or out", N * max(m, n), BITS),
        ("weight", "weights", weight.numel(), BITS),
        ("stride", "places", max(geometry.stride), BITS - 2),
        ("padding", "places", max(geometry.padding), BITS - 2),
        ("dilation", "places from one end of the kernel to the other", reach, BITS - 2),
    ):
        if count >= 2**bits:
            raise ValueError(f"{name}: got {count} {what}, allowed are fewer than 2^{bits}")
    _check_length(weight[0].numel())
    sizes: list[Any] = [int32(x) for x in (N, groups, m // groups, n // groups, height, width, out[0])]
    for divisor in (out[1], math.prod(out), kernel[1], math.prod(kernel), *geometry.stride):
        sizes += [int32(divisor), uint32(magic(divisor))]
    flags = (int(bias.ndim == 4), int(geometry.before))
    return sizes + [int32(x) for x in (*geometry.padding, *geometry.dilation, *flags)]


def magic(divisor: int) -> int:
    """What ``Divisor`` in dac_conv.cu multiplies by instead of dividing."""
    shift = (divisor - 1).bit_length()
    return (((1 << shift) - divisor) << 32) // divisor + 1


def _check_length(terms: int) -> None:
    """Offsets of a tile's 128 rows have 31 bits."""
    if terms >= 2**24:
        raise ValueError(f"weight: got {terms} weights for one output or input, allowed are fewer than 2^24")


def _finish(kernels: Kernels, partial: Tensor, weight: Tensor, bias: Tensor, simulated: bool) -> tuple[Tensor, Tensor]:
    """The gradients of weight and bias from the parts of their sums."""
    d_weight, d_bias = torch.empty_like(weight), torch.empty_like(bias)
    plan = Tiling("", FINISH_THREADS, math.ceil(bias.numel() / FINISH_THREADS))
    shared = int32(weight.numel() // bias.numel())
    arguments = [partial, weight, bias, d_weight, d_bias, int64(bias.numel()), shared, int32(len(partial))]
    _launch(kernels, "finish", plan, 1, arguments, weight, simulated)
    return d_weight, d_bias


def _launch(
    kernels: Kernels, what: str, plan: Tiling, times: int, arguments: list[Any], z: Tensor, simulated: bool
) -> None:
    name = "_".join(part for part in (kernels.source.stem, what, plan.kind, KERNEL_DTYPES[z.dtype]) if part)
    kernels.launch(name, (plan.tiles * times,), (plan.threads,), arguments, z.device, simulated)
