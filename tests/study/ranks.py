"""A small training with ARR attached, alone or as one of the ranks that torchrun starts, which share its batches.

``python -m torch.distributed.run --standalone --nproc-per-node 2 ranks.py FOLDER``

It normalises by layer, as each example can do by itself. What looks at a batch has to look at the batches of all ranks;
`torch.nn.SyncBatchNorm` does, but not on a CPU.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from companion import attach_arr

CLASSES, FEATURES, BATCH, STEPS = 3, 12, 24, 30


def train(rank: int = 0, world: int = 1) -> dict[str, Tensor]:
    """Train on the part of every batch that is this rank's; its losses, averaged over the ranks, means and weights."""
    torch.manual_seed(0)
    targets = torch.randint(CLASSES, (STEPS, BATCH))
    inputs = torch.randn(CLASSES, FEATURES)[targets] + torch.randn(STEPS, BATCH, FEATURES)
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, CLASSES))
    arr = attach_arr(model, "2", CLASSES, (FEATURES,))
    # the means are alike because ARR makes them so, not because the first rank sends its own
    run = DistributedDataParallel(model, forward_sync_buffers=False) if world > 1 else model
    rule = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    own = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    losses = []
    for x, target in zip(inputs[:, own], targets[:, own], strict=True):
        loss = F.cross_entropy(run(x), target) + arr.loss(target)
        rule.zero_grad()
        loss.backward()
        rule.step()
        losses.append(loss.detach())
    seen = torch.stack(losses)
    if world > 1:
        dist.all_reduce(seen)
    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    return {"losses": seen / world, "means": arr.arr.mean, "weights": weights}


def main(folder: Path) -> None:
    """What torchrun starts: train, and write what came out into a file of this rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = train(dist.get_rank(), dist.get_world_size())
    try:
        nn.SyncBatchNorm(FEATURES)(torch.zeros(2, FEATURES))
    except ValueError as error:
        found["refused"] = str(error)  # type: ignore[assignment]
    torch.save(found, folder / os.environ["RANK"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
