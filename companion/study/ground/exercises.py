"""The exercises on kernels and the puzzles: the right answers, and the mistakes that have words of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from companion.study.exercises import Exercise

__all__ = ["EXERCISES"]

WARP, SECTOR, FLOAT = 32, 32, 4
"""Lanes of a warp; bytes of a sector; bytes of a number in float32."""

ELEMENTS, BLOCK = 10_000, 256
"""Of the first exercise."""


def idle_threads() -> int:
    """Those of the last block that have no element."""
    return -ELEMENTS % BLOCK


def strides() -> Iterator[tuple[int]]:
    """From one lane's element to the next lane's, in elements."""
    return iter([(1,), (2,), (3,), (8,), (12,), (1000,)])


def used(stride: int, size: int = FLOAT) -> float:
    """The share that a warp's load uses of the bytes that are fetched for it."""
    return WARP * size / (SECTOR * _touched(stride, size))


def _touched(stride: int, size: int = FLOAT) -> int:
    return len({size * stride * lane // SECTOR for lane in range(WARP)})


def rows() -> Iterator[tuple[Tensor]]:
    """y (rows, d) in float32: d from 1 to all that registers hold; around numbers far from 0, and one row over 1000."""
    around = {(3, 40): 0.0, (2, 33): 1000.0, (5, 45): -200.0, (4, 32): 1.0, (2, 31): 0.0, (1, 1): 0.0, (1, 1024): -2e4}
    for seed, (shape, centre) in enumerate(around.items()):
        yield (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + centre,)
    yield (torch.linspace(0, 1000, 1000).expand(2, -1).clone(),)


def softmax(y: Tensor) -> Tensor:
    """Over each row, rounded once."""
    return torch.softmax(y.double(), -1).to(y)


def _over(y: Tensor, largest: Tensor | float) -> Tensor:
    powers = torch.exp(y - largest)
    return powers / powers.sum(-1, keepdim=True)


def _largest(y: Tensor) -> Tensor:
    return y.amax(-1, keepdim=True)


def _lane_by_lane(y: Tensor) -> Tensor:
    of_lanes = torch.empty_like(y)
    for lane in range(WARP):
        of_lanes[:, lane::WARP] = softmax(y[:, lane::WARP])
    return of_lanes


def _own_maximum(y: Tensor) -> Tensor:
    """Each lane subtracts the largest of its own elements; the sum is over all lanes."""
    powers = torch.empty_like(y)
    for lane in range(min(WARP, y.shape[1])):
        of_lane = y[:, lane::WARP]
        powers[:, lane::WARP] = torch.exp(of_lane - _largest(of_lane))
    return powers / powers.sum(-1, keepdim=True)


def _filled_up(y: Tensor) -> Tensor:
    """With zeros to 1024 elements, as many as the registers hold."""
    return softmax(torch.nn.functional.pad(y, (0, 1024 - y.shape[1])))[:, : y.shape[1]]


# --- page puzzles -----------------------------------------------------------------------------------------------------

CHUNK = 64
"""Numbers that one block adds up in the third puzzle."""

NOT_WRITTEN = (
    "Nothing is written yet: replace every `...`; if none is left, see which threads reach the line that writes."
)


def _unwritten(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What is in the output before the launch: NaN, in the shape of the right answer."""
    return lambda *arguments: torch.full_like(right(*arguments), torch.nan)


def _float(*shape: int, seed: int, centre: float = 0.0) -> Tensor:
    """Quarters, so that every processor draws the same and adds them up exactly."""
    return torch.randint(-12, 13, shape, generator=torch.Generator().manual_seed(seed)) / 4 + centre


def vectors() -> Iterator[tuple[Tensor]]:
    """x (n,): less than a block of eight, a few blocks, and full ones."""
    return ((_float(n, seed=n),) for n in (20, 4, 8, 24))


def plus_ten(x: Tensor) -> Tensor:
    """Ten more, element by element."""
    return x + 10


def _first_block(x: Tensor) -> Tensor:
    return torch.where(torch.arange(len(x)) < 8, x + 10, torch.nan)


def matrices() -> Iterator[tuple[Tensor, Tensor]]:
    """x (rows, columns) and a number for each column."""
    return ((_float(r, c, seed=r), _float(c, seed=c)) for r, c in ((4, 6), (8, 5), (6, 10), (12, 7)))


def plus_bias(x: Tensor, b: Tensor) -> Tensor:
    """To each row the same numbers."""
    return x + b


def _first_tile(x: Tensor, b: Tensor) -> Tensor:
    """What one block of four times four threads reaches."""
    y = torch.full_like(x, torch.nan)
    y[:4, :4] = (x + b)[:4, :4]
    return y


def _exchanged_axes(x: Tensor, b: Tensor) -> Tensor:
    """The launch covers as many rows as it should columns, in whole tiles."""
    down, across = (-(-size // 4) * 4 for size in reversed(x.shape))
    y = torch.full_like(x, torch.nan)
    y[:down, :across] = (x + b)[:down, :across]
    return y


def chunks() -> Iterator[tuple[Tensor]]:
    """x (n,): whole chunks, parts of one, and less than one."""
    return ((_float(n, seed=n, centre=0.5),) for n in (128, 100, 12, 64, 200))


def chunk_sums(x: Tensor) -> Tensor:
    """One sum for each chunk, rounded once."""
    padded = torch.nn.functional.pad(x.double(), (0, -len(x) % CHUNK))
    return padded.reshape(-1, CHUNK).sum(1).to(x)


def _chunk_firsts(x: Tensor) -> Tensor:
    return x[::CHUNK].clone()


def _half_chunks(x: Tensor) -> Tensor:
    """Without the last step, which adds the two numbers that are left."""
    padded = torch.nn.functional.pad(x.double(), (0, -len(x) % CHUNK))
    return padded.reshape(-1, CHUNK)[:, ::2].sum(1).to(x)


def warps() -> Iterator[tuple[Tensor]]:
    """x (rows, 32): a row for each warp."""
    return ((_float(rows, WARP, seed=rows),) for rows in (1, 3, 2))


def running_sums(x: Tensor) -> Tensor:
    """Of each row, rounded once."""
    return x.double().cumsum(1).to(x)


def _shifted_sums(x: Tensor) -> Tensor:
    """Every lane adds at each step: one without a neighbour so far away is given its own number."""
    s, lane = x.clone(), torch.arange(WARP)
    for far in (1, 2, 4, 8, 16):
        s = s + torch.where(lane >= far, s.roll(far, 1), s)
    return s


def groups() -> Iterator[tuple[Tensor]]:
    """x (rows, d): less than a warp, more, and numbers far from 0."""
    cases = (((3, 40), 0.0), ((2, 7), 1.0), ((1, 32), -5.0), ((5, 100), 1e4))
    return ((_float(*shape, seed=shape[1], centre=centre),) for shape, centre in cases)


def statistics(x: Tensor) -> Tensor:
    """Mean and variance of each row, rounded once."""
    variance, mean = torch.var_mean(x.double(), 1, correction=0)
    return torch.stack([mean, variance], 1).to(x)


def _with(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return torch.stack([mean, variance], 1).to(x)


def _of_whole_warps(x: Tensor) -> Tensor:
    """Spare lanes put the square of the mean into the variance."""
    x64, d = x.double(), x.shape[1]
    mean = x64.mean(1)
    spare = -d % WARP
    return _with(x, mean, ((x64 - mean[:, None]).square().sum(1) + spare * mean.square()) / d)


def factors() -> Iterator[tuple[Tensor, Tensor]]:
    """a (n, k) and b (k, m): whole tiles of four, and parts."""
    sizes = ((8, 8, 4), (6, 10, 4), (4, 3, 8), (5, 9, 12))
    return ((_float(n, k, seed=n), _float(k, m, seed=m)) for n, k, m in sizes)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Of two matrices, rounded once."""
    return (a.double() @ b.double()).to(a)


def _last_tile(a: Tensor, b: Tensor) -> Tensor:
    start = (a.shape[1] - 1) // 4 * 4
    return product(a[:, start:], b[start:])


def _whole_tiles(a: Tensor, b: Tensor) -> Tensor:
    whole = a.shape[1] // 4 * 4
    return product(a[:, :whole], b[:whole])


EXERCISES = (
    Exercise(
        "kernels-1",
        idle_threads,
        mistakes={
            "So many blocks there are; asked are threads.": lambda: -(-ELEMENTS // BLOCK),
            "So many threads there are in all; most of them have an element.": lambda: -(-ELEMENTS // BLOCK) * BLOCK,
            "So many threads of the last block do have an element; asked are the others.": lambda: ELEMENTS % BLOCK,
            "With one block less, elements would be left without a thread: round up.": lambda: -(ELEMENTS % BLOCK),
            "So it would be if the size of a block divided the number of elements.": lambda: 0,
            "That is a whole block; a block without any element is not launched.": lambda: BLOCK,
        },
    ),
    Exercise(
        "kernels-2",
        used,
        strides,
        mistakes={
            "A lane needs one sector at most: far enough apart, it gets no worse.": lambda stride: 1 / stride,
            "That is the number of sectors; asked is which share of their bytes is used.": _touched,
            "That is the share that nobody uses.": lambda stride: 1 - used(stride),
            "Lanes that are near each other share a sector.": lambda stride: FLOAT / SECTOR,
            "It is upside down: that is fetched for used.": lambda stride: 1 / used(stride),
            "That is for numbers of two bytes; a float has four.": lambda stride: used(stride, 2),
            "That is for numbers of eight bytes; a float has four.": lambda stride: used(stride, 8),
        },
    ),
    Exercise(
        "kernels-3",
        softmax,
        rows,
        mistakes={
            "The largest element is not subtracted: e¹⁰⁰⁰ is infinite in float32.": lambda y: _over(y, 0.0),
            "A lane without an element put a 0 into the maximum; in a row of negative numbers that is the largest.": (
                lambda y: _over(y, _largest(y).clamp_min(0.0))
            ),
            "Lanes without an element have put a zero into the row: it counts in the sum like any number.": (
                _filled_up
            ),
            "Each lane divides by a sum of its own: the sums of the lanes have to meet.": _lane_by_lane,
            "Each lane subtracts a maximum of its own: the maxima of the lanes have to meet, too.": _own_maximum,
            "Each lane subtracts its own maximum, which without an element makes NaN: the maxima have to meet.": (
                lambda y: _own_maximum(y) if y.shape[1] >= WARP else torch.full_like(y, torch.nan)
            ),
            "That is y itself: the kernel still copies.": lambda y: y,
            "That is e to the power y − M; its sum is still to be divided by.": lambda y: torch.exp(y - _largest(y)),
            "That is the softmax's logarithm.": lambda y: torch.log_softmax(y, -1),
            "The sums go down the columns; a row is what lies along the last dimension.": (
                lambda y: torch.softmax(y, 0)
            ),
        },
    ),
    Exercise(
        "puzzles-1",
        plus_ten,
        vectors,
        mistakes={
            NOT_WRITTEN: _unwritten(plus_ten),
            "Only the first block has written: the others count from 0, too. Add the threads of the blocks before.": (
                _first_block
            ),
            "That is x itself: ten is still to be added.": lambda x: x,
            "That is ten times x; asked is ten more.": lambda x: 10 * x,
        },
    ),
    Exercise(
        "puzzles-2",
        plus_bias,
        matrices,
        mistakes={
            NOT_WRITTEN: _unwritten(plus_bias),
            "Only the first block has written: the others count from 0, too, along each of the two dimensions.": (
                _first_tile
            ),
            "Rows and columns have changed places: y counts rows, x counts columns.": _exchanged_axes,
            "That is x itself: the bias is still to be added.": lambda x, b: x,
            "Every row is given the bias of the first column.": lambda x, b: x + b[0],
        },
    ),
    Exercise(
        "puzzles-3",
        chunk_sums,
        chunks,
        mistakes={
            NOT_WRITTEN: _unwritten(chunk_sums),
            "That is the first number of each chunk: nothing has been added to it.": _chunk_firsts,
            "The last step is missing: two numbers are left, a distance of one apart.": _half_chunks,
            "That is the mean of each chunk's 64 places; asked is the sum.": lambda x: chunk_sums(x) / CHUNK,
        },
    ),
    Exercise(
        "puzzles-4",
        running_sums,
        warps,
        mistakes={
            NOT_WRITTEN: _unwritten(running_sums),
            "A lane that has nobody so far to its left is given its own number back, and must not add it.": (
                _shifted_sums
            ),
            "That is x itself: no lane has added anything.": lambda x: x,
            "Every lane has the sum of the whole row; asked is the sum up to it.": (
                lambda x: x.sum(1, keepdim=True).expand_as(x).clone()
            ),
            "It runs from the right: ask lanes with smaller numbers, with `up`.": (
                lambda x: running_sums(x.flip(1)).flip(1)
            ),
            "The lane's own number is missing in its sum.": lambda x: running_sums(x) - x,
        },
    ),
    Exercise(
        "puzzles-5",
        statistics,
        groups,
        mistakes={
            NOT_WRITTEN: _unwritten(statistics),
            "Lanes without an element have put a zero into the row: its distance to the mean counts in the variance.": (
                _of_whole_warps
            ),
            "The variance is divided by d − 1; asked is by d.": (
                lambda x: _with(x, x.double().mean(1), x.double().var(1))
            ),
            "That is the standard deviation; asked is its square.": (
                lambda x: _with(x, x.double().mean(1), x.double().std(1, correction=0))
            ),
            "That is the mean of the squares: the mean of the row is still to be subtracted.": (
                lambda x: _with(x, x.double().mean(1), x.double().square().mean(1))
            ),
            "Those are sums: divide by d.": lambda x: x.shape[1] * statistics(x),
        },
    ),
    Exercise(
        "puzzles-6",
        product,
        factors,
        mistakes={
            NOT_WRITTEN: _unwritten(product),
            "Only the last tile counts: the sum begins anew with each.": _last_tile,
            "Only whole tiles count: k need not be a multiple of the tile; round up.": _whole_tiles,
        },
    ),
)
