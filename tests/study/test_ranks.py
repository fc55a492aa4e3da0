"""Two processes under torchrun train as one does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.study import ranks

RANKS = 2
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this torch has no gloo: ranks were not tried"
)
def test_two_ranks_give_one_ranks_losses_and_means_that_are_alike(tmp_path: Path) -> None:
    command = [*TORCHRUN, ranks.__file__, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    alone = ranks.train()
    first, second = (torch.load(tmp_path / str(rank)) for rank in range(RANKS))
    assert alone["losses"][-1] < 0.8 * alone["losses"][0]
    for key in ("losses", "means", "weights"):
        assert torch.equal(first[key], second[key]), key
        torch.testing.assert_close(first[key], alone[key], rtol=1e-4, atol=1e-5)
    # the page on scaling out says so
    assert "expected input tensor to be on GPU" in first["refused"]
