r"""Class means that follow their samples one by one, for a whole mini-batch at once.

Each sample :math:`x_i` moves the mean of its class, :math:`\mu \leftarrow (1-m)\mu + m x_i`, in the order of the batch.
With :math:`r_i` samples of its class before it in the batch, what sample i meets is

.. math::
    \mu_{(i)} = (1-m)^{r_i}\mu + \sum_{j\ \text{before}\ i} m\,(1-m)^{r_i-r_j-1} x_j
    = \mu + \sum_{j\ \text{before}\ i} m\,(1-m)^{r_i-r_j-1} (x_j - \mu),

a sum over samples of the same class: one product of an N × N matrix with the batch, whatever the number of classes. The
second form is computed: where samples stay as they are, so does the mean, however small m is. There is no loop over
samples, and nothing is read back from a GPU, but the sizes of the batches where there are several ranks. Most of that
matrix is zeros; a CPU looks which, and leaves them out.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Followed(NamedTuple):
    """What a batch does to the class means.

    Parameters
    ----------
    before : Tensor
        (N, d): the mean that each sample meets; the first of its class, which becomes the mean, meets itself.
    share : Tensor
        (N, 1): how far each sample pulls that mean towards itself, m, and 1 for a sample that becomes the mean.
    mean, seen : Tensor
        (K, d) and (K,): the means after the whole batch, and which classes have one.
    """

    before: Tensor
    share: Tensor
    mean: Tensor
    seen: Tensor


def follow(x: Tensor, target: Tensor, mean: Tensor, seen: Tensor, momentum: float, from_first: bool) -> Followed:
    """Let the class means follow a batch; nothing is changed in place.

    Parameters
    ----------
    x : Tensor
        (N, d), in the dtype of the means, without a graph.
    target : Tensor
        (N,), int64, from 0 to K − 1.
    mean, seen : Tensor
        (K, d), and (K,) of bool.
    momentum : float
        m.
    from_first : bool
        A class that was not seen starts with its first sample; otherwise with 0.

    Returns
    -------
    Followed
        A sample that is not finite meets its mean like others, but moves none: one overflow must not spoil a state
        that is saved.
    """
    count, device = len(x), x.device
    if not count:
        return Followed(x, x[:, :1], mean, seen)
    counts = x.amax(1).isfinite() & x.amin(1).isfinite()
    earlier = (target[:, None] == target).tril(-1) & counts
    rank = earlier.sum(1)
    opens = (rank == 0) & counts & ~seen[target] if from_first else torch.zeros_like(counts)
    # m, and 1 for a sample that becomes the mean
    share = torch.where(opens, 1.0, torch.full((), momentum, dtype=x.dtype, device=device))
    keep = torch.full((), 1 - momentum, dtype=x.dtype, device=device)
    before = mean[target]
    if device.type == "cpu" and not torch.compiler.is_compiling():
        pairs = earlier.nonzero().T
        later, first = pairs
        weights = keep ** (rank[later] - rank[first] - 1) * share[first]
        weights = torch.sparse_coo_tensor(
            pairs, weights, earlier.shape, device=device, check_invariants=False, is_coalesced=True
        )
        moves = x - before
    else:
        weights = torch.where(earlier, keep ** (rank[:, None] - rank - 1).clamp(min=0) * share, 0)
        moves = torch.where(counts[:, None], x - before, 0)
    # In place: new memory of this size takes as long as the sum.
    before.addmm_(weights, moves)
    before = torch.where(opens[:, None], x, before)
    # Of each class the last sample leaves the mean; -1: there is none.
    order = torch.where(counts, torch.arange(count, device=device), -1)
    last = torch.full((len(mean),), -1, device=device).scatter_reduce(0, target, order, "amax")
    present, at = last >= 0, last.clamp(min=0)
    left = torch.lerp(before[at], x[at], share[at, None])
    return Followed(before, share[:, None], torch.where(present[:, None], left, mean), seen | present)


def of_all_ranks(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor, slice]:
    """The batches of all ranks in the order of the ranks, and where the own one lies in it."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return x, target, slice(None)
    rank, world = dist.get_rank(), dist.get_world_size()
    sizes = [torch.zeros(1, dtype=torch.int64, device=x.device) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(x)], device=x.device))
    counts = [int(size) for size in sizes]

    def gather(own: Tensor) -> Tensor:
        # what is gathered must be of one size
        padded = torch.cat([own, own.new_zeros(max(counts) - len(own), *own.shape[1:])])
        parts = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    start = sum(counts[:rank])
    return gather(x), gather(target), slice(start, start + len(x))
