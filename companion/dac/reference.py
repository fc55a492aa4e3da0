r"""DAC in plain torch: every connection has its own bias and its own activation.

.. math:: f_i(z) = \sum_j w_{ij}\,\varphi(b_{ij} + z_j)

:func:`linear` and :func:`conv2d` are this formula as ordinary differentiable tensor maths, which compilers and
transforms can trace. They hold one number for every sample, output, input and position.

:func:`forward_in_blocks` and :func:`backward_in_blocks` hold a block of these numbers at a time. A dense layer is a
kernel of one position on an image of one pixel. For a few outputs i and some pixels of some samples they activate
the inputs once, multiply the matrix (inputs × pixels) by the kernel's (positions × inputs), and add each position's map
to the output, shifted. The activation is computed as it stands, not as max(z, −b) + b: so a connection that is
silent contributes exactly nothing, however large its bias.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from companion.activations import PULL_BACKS, Activation, activated
from companion.operators import cast, compute_dtype, image_format

PAD_ORDERS = ("after", "before")


class Geometry(NamedTuple):
    """What a convolution is told beside its tensors. ``before``: zeros are padded before bias and activation."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    before: bool


def output_size(z: Tensor, weight: Tensor, geometry: Geometry) -> tuple[int, int]:
    """Height and width of the output of a convolution."""
    height, width = (
        (z.shape[2 + d] + 2 * geometry.padding[d] - geometry.dilation[d] * (weight.shape[2 + d] - 1) - 1)
        // geometry.stride[d]
        + 1
        for d in (0, 1)
    )
    return height, width


# --- differentiable ----------------------------------------------------------------------------------------------


def linear(z: Tensor, weight: Tensor, bias: Tensor, phi: Activation) -> Tensor:
    """f of the rows of ``z`` (N, m), with a number for every (sample, output, input)."""
    # Σ_j w_ij φ(b_ij + z_j)
    return (weight * phi(z.unsqueeze(-2) + bias)).sum(-1)


def conv2d(z: Tensor, weight: Tensor, bias: Tensor, phi: Activation, geometry: Geometry) -> Tensor:
    """f of the images ``z`` (N, m, H, W), with a number for every (sample, output, input, position)."""
    if weight.numel() == 0:  # torch convolves nothing with no channels
        return _nothing(z, weight, bias, geometry)
    if geometry.before:
        z = F.pad(z, (geometry.padding[1],) * 2 + (geometry.padding[0],) * 2)
        geometry = geometry._replace(padding=(0, 0))
    if bias.ndim == 4:
        return _by_positions(z, weight, bias, phi, geometry)
    # φ(b_ij + z_j) is computed once and met by every position of the kernel
    y = phi(_paired(z, weight, geometry.groups) + bias[:, :, None, None]).flatten(1, 2)
    # Of one image, channels-last, y has some batch stride. With weights that are channels-last, too, the convolution of
    # torch 2.15 in float64 on a CPU then has wrong weight gradients where a group has several inputs:
    #     F.conv2d(torch.randn(36).double().as_strided((1, 4, 3, 3), (4, 1, 12, 4)), weight, groups=2)
    # So all strides of the weights are those of a contiguous tensor.
    weight = weight.flatten().view(weight.shape)
    return F.conv2d(y, weight, None, geometry.stride, geometry.padding, geometry.dilation, weight.shape[0])


def _paired(z: Tensor, weight: Tensor, groups: int) -> Tensor:
    """(N, m, H, W) → (N, n, m/groups, H, W): to every output the inputs that it sees."""
    n, own = weight.shape[:2]
    N, _, H, W = z.shape
    return z.view(N, groups, 1, own, H, W).expand(-1, -1, n // groups, -1, -1, -1).flatten(1, 2)


def _nothing(z: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
    """An output of zeros; the operands stay in the graph by sums of nothing."""
    zeros = z.new_zeros(z.shape[0], weight.shape[0], *output_size(z, weight, geometry))
    return zeros + sum(x.flatten()[:0].sum() for x in (z, weight, bias))


def _by_positions(z: Tensor, weight: Tensor, bias: Tensor, phi: Activation, geometry: Geometry) -> Tensor:
    size = output_size(z, weight, geometry)
    total = _nothing(z, weight, bias, geometry)
    found = sweeps((z.shape[2], z.shape[3]), (weight.shape[2], weight.shape[3]), size, geometry, single=True)
    for sweep in found:
        (((p, q), (rows, columns), _),) = sweep.meetings
        window = _paired(z[:, :, sweep.rows, sweep.columns], weight, geometry.groups)
        # Σ_j w_ijp φ(b_ijp + z_jp)
        part = (weight[:, :, p, q, None, None] * phi(window + bias[:, :, p, q, None, None])).sum(2)
        around = (columns.start, size[1] - columns.stop, rows.start, size[0] - rows.stop)
        total = total + F.pad(part, around)
    return total


# --- which pixels meet which positions of the kernel -------------------------------------------------------------


class Line(NamedTuple):
    """Pixels of one axis at the stride's distance, and the positions of the kernel that meet some of them.

    ``meetings``: the position, the outputs where it meets a pixel, and these pixels, counted within the line.
    """

    pixels: slice
    meetings: tuple[tuple[int, slice, slice], ...]


class Sweep(NamedTuple):
    """The same for both axes."""

    rows: slice
    columns: slice
    meetings: tuple[tuple[tuple[int, int], tuple[slice, slice], tuple[slice, slice]], ...]

    @property
    def pixels(self) -> int:
        """How many."""
        return _length(self.rows) * _length(self.columns)


def _length(pixels: slice) -> int:
    return len(range(pixels.start, pixels.stop, pixels.step))


def lines(size: int, kernel: int, outputs: int, stride: int, padding: int, dilation: int, single: bool) -> list[Line]:
    """The lines of one axis: one for each remainder that offsets leave by the stride; ``single``: one a position."""
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    for p in range(kernel):
        offset = p * dilation - padding
        # 0 ≤ o·stride + offset < size
        first, last = max(0, -(offset // stride)), min(outputs, (size - 1 - offset) // stride + 1)
        if first < last:
            found.setdefault(p if single else offset % stride, []).append((p, first, last, first * stride + offset))
    result = []
    for members in found.values():
        start = min(begin for *_, begin in members)
        stop = max(begin + (last - first - 1) * stride + 1 for _, first, last, begin in members)
        own = [(begin - start) // stride for *_, begin in members]
        meetings = [
            (p, slice(first, last), slice(o, o + last - first))
            for (p, first, last, _), o in zip(members, own, strict=True)
        ]
        result.append(Line(slice(start, stop, stride), tuple(meetings)))
    return result


def part_of(line: Line, begin: int, end: int) -> Line:
    """The line's pixels ``begin`` to ``end`` alone."""
    start, stop, stride = line.pixels.start, line.pixels.stop, line.pixels.step
    kept = []
    for p, outputs, own in line.meetings:
        low, high = max(own.start, begin), min(own.stop, end)
        if low < high:
            first = outputs.start + low - own.start
            kept.append((p, slice(first, first + high - low), slice(low - begin, high - begin)))
    return Line(slice(start + begin * stride, min(start + (end - 1) * stride + 1, stop), stride), tuple(kept))


def sweeps(
    image: tuple[int, int],
    kernel: tuple[int, int],
    size: tuple[int, int],
    geometry: Geometry,
    single: bool,
    most: int | None = None,
) -> list[Sweep]:
    """Every meeting of a pixel and a position, once.

    ``single``: one position in each sweep. ``most``: no more pixels than this, unless one row alone has more.
    """
    rows, columns = (
        lines(image[d], kernel[d], size[d], geometry.stride[d], geometry.padding[d], geometry.dilation[d], single)
        for d in (0, 1)
    )
    if most is not None and columns:
        height = max(1, most // max(_length(column.pixels) for column in columns))
        rows = [
            part_of(row, begin, min(begin + height, _length(row.pixels)))
            for row in rows
            for begin in range(0, _length(row.pixels), height)
        ]
    return [_crossed(row, column) for row, column in itertools.product(rows, columns) if row.meetings]


def _crossed(row: Line, column: Line) -> Sweep:
    meetings = tuple(
        ((p, q), (above, left), (own_rows, own_columns))
        for (p, above, own_rows), (q, left, own_columns) in itertools.product(row.meetings, column.meetings)
    )
    return Sweep(row.pixels, column.pixels, meetings)


# --- functions instead of names ----------------------------------------------------------------------------------


def learned_by(phi: Activation, z: Tensor) -> tuple[Tensor, ...] | None:
    """The leaf tensors that want a gradient from φ, such as the parameters of a module.

    None, if a block after the other could not give them theirs: φ uses what was computed from others before, or
    somebody listens to their gradients, or forward-mode differentiation looks at them.
    """
    before = torch.zeros((), requires_grad=True).view(1).grad_fn
    first = before._sequence_nr() if before is not None else 0  # of the nodes that φ itself makes
    probe = torch.zeros(1, 1, 1, dtype=compute_dtype(z.dtype), device=z.device)
    y = phi(probe)
    if not isinstance(y, Tensor) or (y.shape, y.dtype) != (probe.shape, probe.dtype):
        got = f"shape {tuple(y.shape)} and {y.dtype}" if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(
            f"activation: returned {got} for shape {tuple(probe.shape)} and {probe.dtype}, allowed is a function that "
            "keeps both"
        )
    if forward_ad.unpack_dual(y).tangent is not None:  # type: ignore[no-untyped-call]
        return None
    nodes, seen, leaves = [y.grad_fn], set(), []
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            if node.variable._backward_hooks:
                return None
            leaves.append(node.variable)
        elif node._sequence_nr() < first:
            return None
        nodes += [parent for parent, _ in node.next_functions]
    if not leaves:
        return ()
    # a backward pass of somebody's own may have none for some of them
    given = torch.autograd.grad(y, leaves, torch.ones_like(y), allow_unused=True)
    return tuple(leaf for leaf, gradient in zip(leaves, given, strict=True) if gradient is not None)


# --- in blocks ---------------------------------------------------------------------------------------------------

#: Activations φ(b + z) in a block, and inputs × pixels in a tile, from which it is made: both stay in the cache.
BLOCK = 2**19
TILE = 2**16
#: The same elsewhere: there is no such cache, and a pass takes longer than its launch.
LARGE_BLOCK = 2**25
LARGE_TILE = 2**22


def forward_in_blocks(
    z: Tensor, weight: Tensor, bias: Tensor, activation: str | Activation, geometry: Geometry
) -> Tensor:
    """f of the images ``z`` (N, m, H, W)."""
    plan = _Plan(z, weight, bias, geometry)
    shape = (z.shape[0], weight.shape[0], *plan.size)
    out = torch.empty(shape, dtype=z.dtype, device=z.device, memory_format=image_format(z))
    for samples in plan.samples:
        part = torch.zeros_like(out[samples], dtype=plan.dtype)
        for tile in plan.tiles(z[samples]):
            tile.forward(part, activation)
        out[samples] = part
    return out


def backward_in_blocks(
    grad: Tensor,
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: str | Activation,
    geometry: Geometry,
    needs: tuple[bool, bool, bool],
    learned: tuple[Tensor, ...] = (),
) -> tuple[Tensor | None, ...]:
    """The gradients of z, weight and bias that are needed, and those of what the activation has learned."""
    plan = _Plan(z, weight, bias, geometry)
    grad_z = torch.empty(z.shape, dtype=z.dtype, device=z.device, memory_format=image_format(z)) if needs[0] else None
    grad_weight = torch.zeros_like(plan.weight) if needs[1] else None
    grad_bias = torch.zeros_like(plan.bias) if needs[2] else None
    curve = _Curve(activation, learned)
    for samples in plan.samples:
        part = None if grad_z is None else torch.zeros_like(plan.padded(z[samples]), dtype=plan.dtype)
        for tile in plan.tiles(z[samples]):
            tile.backward(grad[samples], curve, part, grad_weight, grad_bias)
        if grad_z is not None and part is not None:
            grad_z[samples] = plan.unpadded(part)
    return grad_z, *plan.gradients(grad_weight, grad_bias, weight, bias), *curve.totals()


class _Curve:
    """An activation, and the gradients of what it has learned."""

    def __init__(self, activation: str | Activation, learned: tuple[Tensor, ...]) -> None:
        self.activation, self.learned = activation, learned
        # a running sum in 16 bits stops growing
        self.gradients = [torch.zeros_like(x, dtype=compute_dtype(x.dtype)) for x in learned]

    def pull_back(self, slopes: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """φ(x), and ``slopes`` times φ'(x); x may be overwritten."""
        if isinstance(self.activation, str):
            y = activated(x, self.activation)
            return y, PULL_BACKS[self.activation](slopes, x, y)
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = self.activation(x.clone())  # which it may overwrite
        if not y.requires_grad:
            return y, slopes.zero_()
        found = torch.autograd.grad(y, (x, *self.learned), slopes, allow_unused=True, retain_graph=bool(self.learned))
        for total, gradient in zip(self.gradients, found[1:], strict=True):
            if gradient is None:
                raise RuntimeError(
                    "activation: backwards the function does not use a parameter that it used forwards, as where "
                    "functional_call gives a module others for a while; allowed there is the module itself"
                )
            total += gradient
        return y.detach(), torch.zeros_like(x) if found[0] is None else found[0]

    def totals(self) -> list[Tensor]:
        """The gradients of what it has learned, in its dtypes."""
        return [total.to(x.dtype) for total, x in zip(self.gradients, self.learned, strict=True)]


class _Plan:
    """What one pass has in common for all samples: the parameters in the dtype of the computation, and the order."""

    def __init__(self, z: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> None:
        self.dtype = compute_dtype(z.dtype)
        self.groups, self.per_weight = geometry.groups, bias.ndim == 4
        self.weight = weight.to(self.dtype).flatten(2).transpose(1, 2).contiguous()  # (n, positions, m/groups)
        # (1, n, m/groups), or a bias for every position
        self.bias = bias.to(self.dtype).reshape(*bias.shape[:2], -1).permute(2, 0, 1).contiguous()
        kernel, own = (weight.shape[2], weight.shape[3]), weight.shape[1]
        self.size = output_size(z, weight, geometry)
        self.padding = geometry.padding if geometry.before else (0, 0)
        image = z.shape[2] + 2 * self.padding[0], z.shape[3] + 2 * self.padding[1]
        inner = geometry._replace(padding=(0, 0)) if geometry.before else geometry
        self.block, tile = (BLOCK, TILE) if z.device.type == "cpu" else (LARGE_BLOCK, LARGE_TILE)
        self.sweeps = sweeps(image, kernel, self.size, inner, self.per_weight, most=tile // own)
        self.positions = [[p * kernel[1] + q for (p, q), *_ in sweep.meetings] for sweep in self.sweeps]
        step = max(1, tile // (own * max((sweep.pixels for sweep in self.sweeps), default=1)))
        self.samples = [slice(s, s + step) for s in range(0, z.shape[0], step)]
        self._rooms: dict[str, Tensor] = {}

    def room(self, name: str, like: Tensor, outputs: int) -> Tensor:
        """Memory for an (outputs, m, pixels) that lies like the matrix (m, pixels); the same for all tiles."""
        size = outputs * like.numel()
        if name not in self._rooms or self._rooms[name].numel() < size:
            self._rooms[name] = like.new_empty(size)
        return self._rooms[name].as_strided((outputs, *like.shape), (like.numel(), *like.stride()))

    def padded(self, z: Tensor) -> Tensor:
        """What the activation sees."""
        if self.padding == (0, 0):
            return z
        return F.pad(z, (self.padding[1],) * 2 + (self.padding[0],) * 2)

    def unpadded(self, z: Tensor) -> Tensor:
        """The image again."""
        h, w = self.padding
        return z[:, :, h : z.shape[2] - h, w : z.shape[3] - w]

    def tiles(self, z: Tensor) -> Iterator[_Tile]:
        """All that these samples and the parameters are to do with each other."""
        image = self.padded(z)
        n, own = self.weight.shape[0] // self.groups, self.weight.shape[2]
        for sweep, positions in zip(self.sweeps, self.positions, strict=True):
            for group in range(self.groups):
                outputs, channels = slice(group * n, (group + 1) * n), slice(group * own, (group + 1) * own)
                yield _Tile(self, image, sweep, positions, outputs, channels)

    def gradients(
        self, grad_weight: Tensor | None, grad_bias: Tensor | None, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """From the layouts of the plan to those of the parameters."""
        return (
            None if grad_weight is None else _laid_out(grad_weight.transpose(1, 2), weight),
            None if grad_bias is None else _laid_out(grad_bias.permute(1, 2, 0), bias),
        )


def _laid_out(gradient: Tensor, parameter: Tensor) -> Tensor:
    return cast(gradient.reshape(parameter.shape).contiguous(), parameter.dtype)


class _Tile:
    """Some pixels of some samples, the inputs of one group, and the positions of the kernel that meet these pixels."""

    def __init__(
        self, plan: _Plan, image: Tensor, sweep: Sweep, positions: list[int], outputs: slice, channels: slice
    ) -> None:
        self.sweep, self.positions, self.outputs = sweep, positions, outputs
        self.region = (slice(None), channels, sweep.rows, sweep.columns)
        seen = image[self.region]
        self.shape = seen.shape[0], *seen.shape[2:]
        weight = plan.weight[outputs]  # (n, positions, m)
        self.weight = weight if len(positions) == weight.shape[1] else weight[:, positions]
        self.bias_row = positions[0] if plan.per_weight else 0
        self.bias = plan.bias[self.bias_row, outputs].unsqueeze(2)  # (n, m, 1)
        matrix = seen.transpose(0, 1).flatten(1).to(plan.dtype)
        # (m, pixels), in memory the longer dimension last
        self.upright = matrix.shape[1] >= matrix.shape[0]
        self.matrix = matrix.contiguous() if self.upright else matrix.t().contiguous().t()
        n = outputs.stop - outputs.start
        step = min(n, max(1, plan.block // self.matrix.numel()))
        self.blocks = [slice(i, min(i + step, n)) for i in range(0, n, step)]
        self.room = functools.partial(plan.room, like=self.matrix, outputs=step)
        self.step = step

    def as_images(self, maps: Tensor) -> Tensor:
        """(outputs, positions, pixels) → (samples, positions, outputs, rows, columns), the same memory."""
        return maps.view(*maps.shape[:2], *self.shape).transpose(0, 2)

    def biased(self, block: slice) -> Tensor:
        """b + z for some outputs."""
        return torch.add(self.matrix, self.bias[block], out=self.room("x")[: block.stop - block.start])

    def there(self, block: slice, meeting: int) -> tuple[slice, ...]:
        """Where in the images of all outputs a position's map belongs."""
        outputs = slice(self.outputs.start + block.start, self.outputs.start + block.stop)
        return slice(None), outputs, *self.sweep.meetings[meeting][1]

    def here(self, meeting: int) -> tuple[slice | int, ...]:
        """The part of this map that belongs anywhere."""
        return slice(None), meeting, slice(None), *self.sweep.meetings[meeting][2]

    def forward(self, out: Tensor, activation: str | Activation) -> None:
        """Add to the outputs of these samples."""
        for block in self.blocks:
            # the map of position p: Σ_j w_ijp φ(b_ij + z_j); it belongs where the position meets the pixels
            images = self.as_images(torch.bmm(self.weight[block], activated(self.biased(block), activation)))
            for e in range(len(self.positions)):
                out[self.there(block, e)].add_(images[self.here(e)])

    def backward(
        self, grad: Tensor, curve: _Curve, grad_z: Tensor | None, grad_weight: Tensor | None, grad_bias: Tensor | None
    ) -> None:
        """Add to the gradients of these samples and of the parameters."""
        total = torch.zeros_like(self.matrix)
        # the gradient of each position's map; it is 0 where the position meets no pixel
        maps = self.matrix.new_zeros(self.step, len(self.positions), self.matrix.shape[1])
        for block in self.blocks:
            outputs = self.there(block, 0)[1]
            g = maps[: block.stop - block.start]
            images = self.as_images(g)
            for e in range(len(self.positions)):
                images[self.here(e)] = grad[self.there(block, e)]
            # Σ_p w_ijp g_ip, then times φ'(b_ij + z_j)
            slopes = torch.bmm(self.weight[block].transpose(1, 2), g, out=self.room("slopes")[: len(g)])
            y, slopes = curve.pull_back(slopes, self.biased(block))
            if grad_weight is not None:
                part = torch.bmm(g, y.transpose(1, 2))
                if len(self.positions) == grad_weight.shape[1]:
                    grad_weight[outputs] += part
                else:
                    grad_weight[outputs, self.positions] += part
            if grad_bias is not None:
                grad_bias[self.bias_row, outputs] += slopes.sum(2)
            if grad_z is not None:
                # in the order of memory, which is some ten times faster
                total += slopes.sum(0) if self.upright else slopes.transpose(1, 2).sum(0).t()
        if grad_z is not None:
            grad_z[self.region] += total.reshape(-1, *self.shape).transpose(0, 1)
