"""Correct kernels give correct results, in whatever order their threads run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from companion import simulator

SOURCE = Path(__file__).parent / "kernels.cu"
KERNELS = (
    "scale",
    "block_sum",
    "every_shuffle",
    "votes",
    "histogram",
    "last_block_sums",
    "every_atomic",
    "reverse_each_block",
    "dynamic_bytes",
    "coordinates",
    "triple_f16",
    "triple_bf16",
    "read_unwritten",
    "block_votes",
    "every_kind",
    "exact_intrinsics",
    "many_barriers",
)


@pytest.fixture(scope="module")
def module() -> simulator.Module:
    return simulator.load(SOURCE, KERNELS)


@pytest.fixture(params=["natural", "reversed", "shuffled:3", "warps"])
def order(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


# One thread, one warp, a warp and a bit, the largest block; with and without a rest.
@pytest.mark.parametrize(("threads", "n"), [(1, 5), (32, 64), (40, 1000), (1024, 5000)])
def test_a_grid_covers_every_element(module: simulator.Module, threads: int, n: int, order: str) -> None:
    x, y = torch.randn(n), torch.zeros(n)
    blocks = -(-n // threads)
    module.launch("scale", (blocks,), (threads,), [x, y, np.float32(3), np.int32(n)], order=order)
    assert torch.equal(y, 3 * x)


def test_a_block_sums_with_shuffles_and_shared_memory(module: simulator.Module, order: str) -> None:
    x, sums = torch.randint(-9, 9, (50, 333)).float(), torch.zeros(50)
    module.launch("block_sum", (50,), (128,), [x, sums, np.int32(333)], order=order)
    assert torch.equal(sums, x.sum(1))


def test_shuffles_move_values_as_the_programming_guide_says(module: simulator.Module, order: str) -> None:
    out, lane = ints(6, 32), torch.arange(32, dtype=torch.int32)
    module.launch("every_shuffle", (1,), (32,), [out], order=order)
    place, segment = lane % 8, lane // 8 * 8
    assert out[0].tolist() == (segment + 3).tolist()
    assert out[1].tolist() == torch.where(place < 2, lane, lane - 2).tolist()
    assert out[2].tolist() == torch.where(place + 2 > 7, lane, lane + 2).tolist()
    assert out[3].tolist() == (lane ^ 5).tolist()
    assert out[4].tolist() == [1] * 32
    assert out[5].tolist() == (lane ^ 1).tolist()


def test_lanes_vote_while_others_have_exited(module: simulator.Module, order: str) -> None:
    out = torch.zeros(4, 32, dtype=torch.int64).to(torch.uint32)
    module.launch("votes", (1,), (32,), [out], order=order)
    odd = torch.arange(1, 32, 2)
    values = out.to(torch.int64)[:, odd]
    assert set(values[0].tolist()) == {sum(1 << i for i in range(17, 32, 2))}
    assert set(values[1].tolist()) == {1 + 2}
    assert values[2].tolist() == (odd ^ 2).tolist()
    assert set(values[3].tolist()) == {16 * 16 + 31}


def test_the_block_counts_predicates_at_a_barrier(module: simulator.Module, order: str) -> None:
    for threshold, expected in ((10, 3010), (0, 4011), (40, 0)):
        out = ints(40)
        module.launch("block_votes", (1,), (40,), [out, np.int32(threshold)], order=order)
        assert set(out.tolist()) == {expected}


def test_atomics_add_up_within_and_between_blocks(module: simulator.Module, order: str) -> None:
    values, counts = torch.randint(0, 16, (10_000,), dtype=torch.int32), ints(16)
    module.launch("histogram", (79,), (128,), [values, counts, np.int32(10_000)], order=order)
    assert counts.tolist() == torch.bincount(values, minlength=16).tolist()


def test_every_atomic_does_its_operation(module: simulator.Module) -> None:
    i, f = ints(7), torch.zeros(1)
    h, u = torch.zeros(1, dtype=torch.float16), torch.zeros(1, dtype=torch.int64)
    module.launch("every_atomic", (4,), (64,), [i, f, h, u])
    assert i[:5].tolist() == [256, -256, 63, -63, 2**31 - 1]
    assert i[5] == i[6] > 0
    assert (f.item(), h.item(), u.item()) == (128, 64, 256 << 33)


def test_the_last_block_sees_what_all_others_wrote(module: simulator.Module, order: str) -> None:
    x, partial, total = torch.randn(200), torch.zeros(200), torch.zeros(1)
    finished = torch.zeros(1, dtype=torch.uint32)
    module.launch("last_block_sums", (200,), (32,), [x, partial, finished, total], order=order)
    assert total.item() == np.add.accumulate(x.numpy())[-1]
    assert finished.item() == 0


def test_dynamic_shared_memory_has_the_size_of_the_launch(module: simulator.Module, order: str) -> None:
    x, y = torch.randn(4, 96, dtype=torch.float64), torch.zeros(4, 96, dtype=torch.float64)
    module.launch("reverse_each_block", (4,), (96,), [x, y], shared_bytes=96 * 8, order=order)
    assert torch.equal(y, x.flip(1))


def test_two_kernels_give_dynamic_shared_memory_two_names(module: simulator.Module) -> None:
    out = ints(64)
    module.launch("dynamic_bytes", (1,), (64,), [out, np.int32(200)], shared_bytes=200)
    assert out.tolist() == list(range(199, 135, -1))


def test_the_largest_dynamic_shared_memory_can_be_used(module: simulator.Module) -> None:
    out, most = ints(1024), 227 * 1024
    module.launch("dynamic_bytes", (3,), (1024,), [out, np.int32(most)], shared_bytes=most)
    assert out[0] == (most - 1) % 256


def test_grid_and_block_have_three_dimensions(module: simulator.Module, order: str) -> None:
    out = ints(2 * 4, 3 * 2, 5 * 3)
    module.launch("coordinates", (5, 3, 2), (3, 2, 4), [out], order=order)
    z, y, x = torch.meshgrid(*(torch.arange(n) for n in out.shape), indexing="ij")
    assert torch.equal(out.long(), x + 100 * y + 10000 * z)


@pytest.mark.parametrize(("name", "dtype"), [("triple_f16", torch.float16), ("triple_bf16", torch.bfloat16)])
def test_half_precision_in_accesses_of_sixteen_bytes(module: simulator.Module, name: str, dtype: torch.dtype) -> None:
    x = torch.randn(8 * 77).to(dtype)
    y = torch.zeros_like(x)
    module.launch(name, (2,), (64,), [x, y, np.int64(77)])
    assert torch.equal(y, 3 * x)


def test_shared_memory_is_nan_before_every_block(module: simulator.Module) -> None:
    statics, dynamics, first = torch.zeros(10, 64), torch.zeros(10, 64), ints(10)
    module.launch("read_unwritten", (10,), (64,), [statics, dynamics, first], shared_bytes=64 * 8)
    assert statics.isnan().all()
    assert dynamics.isnan().all()
    assert first.tolist() == [1] * 10


def test_every_kind_of_value_arrives(module: simulator.Module) -> None:
    out = torch.zeros(5)
    values = (np.bool_(True), np.int16(-7), np.uint64(5 << 40), np.float64(0.5), np.float16(1.5))
    module.launch("every_kind", (1,), (1,), [out, *values])
    assert out.tolist() == [1, -7, 5, 0.5, 1.5]


def test_exact_intrinsics(module: simulator.Module) -> None:
    out = ints(10)
    x = torch.tensor([2.5, 1e20, float("nan"), 1.0])
    module.launch("exact_intrinsics", (1,), (1,), [x, out])
    bits_of_one, counted = 0x3F800000, 8 + 100 * 31 + 10000 * 4
    assert out.tolist() == [2, 2**31 - 1, 0, bits_of_one, 2, counted, 1 + 10 * 2, 0x77443300, 11, 17]


def test_threads_pass_many_barriers(module: simulator.Module, order: str) -> None:
    x = torch.randn(128)
    y = x.clone()
    module.launch("many_barriers", (1,), (128,), [y, np.int32(300)], order=order)
    assert torch.equal(y, x.roll(-300))


def test_results_do_not_depend_on_the_number_of_workers(
    module: simulator.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, results = torch.randn(300, 100), []
    for workers in ("1", "7"):
        monkeypatch.setenv("COMPANION_SIMULATOR_THREADS", workers)
        sums = torch.zeros(300)
        module.launch("block_sum", (300,), (64,), [x, sums, np.int32(100)])
        results.append(sums)
    assert torch.equal(*results)


def test_input_and_output_may_be_views_of_the_same_memory(module: simulator.Module) -> None:
    memory = torch.arange(100.0)
    module.launch("scale", (1,), (64,), [memory[10:60], memory[10:60], np.float32(2), np.int32(50)])
    assert memory.tolist() == [2 * i if 10 <= i < 60 else i for i in range(100)]
    module.launch("scale", (1,), (64,), [memory[70:90], memory[0:30], np.float32(1), np.int32(20)])
    assert memory[:20].tolist() == list(range(70, 90))


def test_a_copy_is_aligned_like_the_original(module: simulator.Module) -> None:
    x, y = torch.arange(64).half(), torch.zeros(64).half()
    with pytest.raises(simulator.SimulatorError, match="misaligned address"):
        module.launch("triple_f16", (1,), (8,), [x[1:33], y[:32], np.int64(4)])
    module.launch("triple_f16", (1,), (8,), [x[8:40], y[:32], np.int64(4)])
    assert torch.equal(y[:32], 3 * x[8:40])


def test_check_orders_accepts_a_kernel_with_its_barriers(module: simulator.Module) -> None:
    x = torch.randn(20, 200)
    simulator.check_orders(module, "block_sum", (20,), (96,), lambda: [x.clone(), torch.zeros(20), np.int32(200)])


def test_a_sanitized_module_gives_the_same_results() -> None:
    module = simulator.load(SOURCE, KERNELS, sanitize=True)
    x, sums = torch.randint(-9, 9, (6, 333)).float(), torch.zeros(6)
    module.launch("block_sum", (6,), (128,), [x, sums, np.int32(333)])
    assert torch.equal(sums, x.sum(1))
    y = torch.zeros(2, 32, dtype=torch.float64)
    module.launch("reverse_each_block", (2,), (32,), [x[0, :64].double(), y], shared_bytes=32 * 8)
    assert torch.equal(y, x[0, :64].double().reshape(2, 32).flip(1))
