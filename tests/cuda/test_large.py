"""More elements, weights, channels and blocks than 32 bits count: planned right, or refused by name, without memory."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from companion import simulator
from companion.dac import kernel as dac
from tests.cases import of_rooms
from tests.conftest import needs_cubins
from tests.cuda.stand_in import StandIn
from tests.dac.large import SIDE

pytestmark = needs_cubins


@pytest.fixture
def gpu_of_paper(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """It writes down what it is asked to launch."""
    return StandIn(monkeypatch, runs=False)


#: Each in the tests of its room.
PLANNED: dict[str, tuple[Callable[[], None], set[int]]] = of_rooms("PLANNED", "large")
REFUSED: dict[str, tuple[Callable[[], None], str]] = of_rooms("REFUSED", "large")


@pytest.mark.parametrize("case", PLANNED)
def test_sizes_beyond_32_bits_are_handed_over_whole(case: str, gpu_of_paper: StandIn) -> None:
    run, sizes = PLANNED[case]
    run()
    # the stand-in has refused what does not fit its parameter, and grids that no GPU takes
    numbers = {int(x) for at in gpu_of_paper.launched for x in at.numbers if isinstance(x, np.integer)}
    assert sizes <= numbers
    assert any("backward" in at.name or "weight" in at.name for at in gpu_of_paper.launched)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_too_large_is_refused_by_name(case: str, gpu_of_paper: StandIn) -> None:
    run, words = REFUSED[case]
    with pytest.raises(ValueError, match=words):
        run()
    del gpu_of_paper


# --- in the kernel -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))
def test_sums_of_more_than_2_31_weights_are_left_where_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StandIn(monkeypatch)
    weights = SIDE**2
    # Room for the sums, and as much before them, where a product of 32 bits would lead: a file of holes.
    half = 2 * weights * 4
    with (tmp_path / "sums").open("w+b") as file:
        file.truncate(2 * half)
        with mmap.mmap(file.fileno(), 2 * half) as memory:
            room = torch.frombuffer(memory, dtype=torch.float32)
            partial = room[2 * weights :]
            g, z = torch.full((1, SIDE), 3.0), torch.full((1, SIDE), 2.0)
            bias = torch.zeros(64 * SIDE)  # one block reads no more
            arguments = [g, z, bias, partial, np.int64(1), np.int32(SIDE), np.int32(SIDE), np.int32(8)]
            dac.LINEAR.launch("dac_linear_weight_wide_f32", (1,), (256,), arguments, torch.device("cuda"))
            tile = torch.arange(64)[:, None] * SIDE + torch.arange(64)
            assert torch.equal(partial[tile], torch.full((64, 64), 6.0))
            assert torch.equal(partial[weights:][tile], torch.full((64, 64), 3.0))
            del room, partial, arguments
