"""arr.cu: its machine code, its launches, its values, its memory accesses."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import Tensor, nn

import companion
from companion import ARR, simulator
from companion.dnrt import held
from companion.dnrt.held import share_of
from companion.dnrt.kernel import ARR_KERNELS
from companion.dnrt.proof import inputs
from tests.cases import together
from tests.cuda.machine_code import ARCHITECTURES, machine_code, under_the_locked_compiler
from tests.cuda.runs import memory_and_threads
from tests.dnrt.test_arr import CLASSES, DIM, SIZES, batch, walked

needs_simulator = pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))

# --- machine code ---


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nothing_spills_and_two_blocks_share_an_sm(arch: int) -> None:
    under_the_locked_compiler()
    for name, code in machine_code(ARR_KERNELS.source, arch).items():
        assert not code.spills, name
        assert code.registers <= 128, name


def test_packs_are_read_and_gradients_written_sixteen_bytes_at_a_time() -> None:
    for name, code in machine_code(ARR_KERNELS.source, 90).items():
        if "forward" in name:
            # four rows ahead and a row that is looked through, four packs at a time
            assert code.count(r"\bLDG?\.\S*128") >= 8, name
        if "backward" in name:
            assert code.count(r"\bSTG?\.\S*128") == 1, name


# --- launches ---


def test_what_one_stream_makes_no_other_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def share(widths: tuple[int, ...], device: torch.device) -> Tensor:
        made.append(widths)
        return torch.zeros(3)

    monkeypatch.setattr(held, "_share", share)
    monkeypatch.setattr(held, "_kept_share", functools.cache(share))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: 0)
    for stream, count in ((0, 1), (0, 1), (7, 2), (7, 3), (0, 3)):
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device, stream=stream: stream)
        share_of((1, 2), torch.device("cuda"))
        assert len(made) == count


@needs_simulator
def test_a_loss_is_two_launches_and_its_gradient_one(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[str] = []
    original = ARR_KERNELS.launch

    def launch(name: str, *arguments: Any) -> None:
        launched.append(name)
        original(name, *arguments)

    monkeypatch.setattr(ARR_KERNELS, "launch", launch)
    model = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 4), nn.GELU())
    attached = companion.attach_arr(model, ["1", "3"], 2, (3,))
    with companion.backend("simulator"):
        model(torch.randn(5, 3))
        attached.loss(torch.tensor([0, 1, 1, 0, 1])).backward()
    assert launched == ["arr_forward_f32", "arr_finish", "arr_backward_f32"]


# --- values ---

Shape = tuple[int, int, int, list[int] | None]
#: Samples, elements, classes and widths: around a warp, a pack, a block's list of samples, a block's columns.
SHAPES: list[Shape] = [
    *(
        (1, 1, 1, None),
        (2, 3, 2, [1, 2]),
        (31, 33, 4, None),
        (33, 8, 1, None),
        (255, 7, 2, None),
        (256, 16, 3, [12, 4]),
    ),
    *((257, 5, 1, None), (600, 9, 500, None), (5, 1025, 2, None), (5, 2056, 2, [2000, 56]), (4, 8200, 3, None)),
]


def assert_right(arr: ARR, x: Tensor, target: Tensor, widths: list[int] | None = None, times: int = 2) -> None:
    """The loss and means of some batches agree with float64 by plain torch, and every sign is right."""
    exact = ARR(*arr.mean.shape, arr.momentum, arr.read, arr.init)  # type: ignore[arg-type]
    for _ in range(times):
        one, other = x.clone().requires_grad_(), x.double().requires_grad_()
        with companion.backend("simulator"):
            loss = arr.loss(one, target, widths)
        expected = exact.loss(other, target, widths)
        loss.backward()  # type: ignore[no-untyped-call]
        expected.backward()  # type: ignore[no-untyped-call]
        torch.testing.assert_close(loss.double(), expected, rtol=2e-6, atol=1e-7, equal_nan=True)
        torch.testing.assert_close(arr.mean, exact.mean, rtol=2e-6, atol=2e-6)
        assert torch.equal(arr.seen, exact.seen)
        assert one.grad is not None
        assert other.grad is not None
        half = torch.finfo(x.dtype).eps / 2
        smallest = 2**-24 if x.dtype == torch.float16 else 0
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=max(half, 2e-7), atol=smallest)
        target = target.flip(0)


@needs_simulator
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@together("shape", SHAPES)
def test_batches_of_every_size(shape: Shape, dtype: torch.dtype) -> None:
    samples, dim, classes, widths = shape
    x = torch.randn(samples, dim, generator=torch.Generator().manual_seed(0)).to(dtype)
    target = torch.randint(classes, (samples,), generator=torch.Generator().manual_seed(1))
    assert_right(ARR(classes, dim), x, target, widths)


@needs_simulator
@together(
    "case",
    [(m, read, init) for m in (0.0, 0.1, 0.9, 1.0) for read in ("before", "after") for init in ("first", "zero")],
)
def test_every_rule_is_the_loop_over_the_samples(case: tuple[float, str, str]) -> None:
    momentum, read, init = case
    x, target = batch()
    assert_right(ARR(CLASSES, DIM, momentum, read, init), x, target)  # type: ignore[arg-type]
    arr = ARR(CLASSES, DIM, momentum, read, init)  # type: ignore[arg-type]
    losses, mean, seen = walked(arr, x, target)
    with companion.backend("simulator"):
        torch.testing.assert_close(arr(x, target), losses.mean().float())
    torch.testing.assert_close(arr.mean, mean.float())
    assert torch.equal(arr.seen, seen)


@needs_simulator
@pytest.mark.parametrize("read", ["before", "after"])
def test_what_is_not_finite_moves_no_mean_and_spoils_no_other_sample(read: str) -> None:
    x, target = batch(300, 3)
    x[0, 1], x[7, 0], x[270, 4] = float("inf"), float("nan"), -float("inf")
    for dtype in (torch.float32, torch.float16):
        arr = ARR(CLASSES, DIM, read=read)  # type: ignore[arg-type]
        assert_right(arr, x.to(dtype), target)
        assert arr.mean.isfinite().all()


@needs_simulator
def test_tensors_may_begin_anywhere_lie_scattered_and_targets_be_short() -> None:
    x, target = batch(9)
    for start in (1, 2, 3):
        memory = torch.empty(x.numel() + start)[start:].view(x.shape).copy_(x)
        assert_right(ARR(CLASSES, DIM), memory, target)
    assert_right(ARR(CLASSES, DIM), x.T.contiguous().T, target.to(torch.uint8))
    scattered = ARR(CLASSES, DIM)
    scattered.mean = scattered.mean.T.contiguous().T  # plain torch computes
    assert_right(scattered, x, target)


@needs_simulator
def test_means_of_another_dtype_are_no_kernels_business() -> None:
    x, target = batch(9)
    found = []
    for backend in ("torch", "simulator"):
        arr = ARR(CLASSES, DIM)
        state = arr.state_dict()
        arr.load_state_dict(state | {"mean": state["mean"].bfloat16()}, assign=True)
        assert arr.mean.dtype == torch.bfloat16
        with companion.backend(backend):
            found.append((arr.loss(x, target), arr.mean))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_weights_of_layers_are_float32_whatever_is_usual(dtype: torch.dtype) -> None:
    torch.set_default_dtype(dtype)
    try:
        with torch.inference_mode():
            share = share_of((3, 5, 2), torch.device("cpu"))
    finally:
        torch.set_default_dtype(torch.float32)
    assert share is not None
    assert not share.is_inference()
    torch.testing.assert_close(share, torch.tensor([1 / 9] * 3 + [1 / 15] * 5 + [1 / 6] * 2), rtol=0, atol=0)


@needs_simulator
def test_a_target_that_is_no_class_is_refused_and_an_empty_batch_moves_nothing() -> None:
    arr = ARR(2, 3)
    with companion.backend("simulator"):
        with pytest.raises(ValueError, match="target: got 0 … 2"):
            arr(torch.zeros(2, 3), torch.tensor([0, 2]))
        assert arr(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)).isnan()
    assert not arr.seen.any()


@needs_simulator
def test_the_gradient_is_differentiable_by_that_of_the_loss_and_comes_in_batches() -> None:
    x, target = batch(6)
    leaf, grad = x.requires_grad_(), torch.tensor(3.0, requires_grad=True)
    with companion.backend("simulator"):
        loss = ARR(CLASSES, DIM).loss(leaf, target, [2, 3])
    (dx,) = torch.autograd.grad(loss, leaf, grad, create_graph=True)
    (plain,) = torch.autograd.grad(loss, leaf, grad.detach(), retain_graph=True)
    torch.testing.assert_close(dx, plain)
    (of_grad,) = torch.autograd.grad(dx.sum(), grad)
    torch.testing.assert_close(of_grad, plain.sum() / 3)
    (many,) = torch.autograd.grad(loss, leaf, torch.tensor([3.0, 6.0]), is_grads_batched=True)
    torch.testing.assert_close(many, torch.stack([plain, 2 * plain]))


@needs_simulator
def test_autograd_notices_that_the_means_have_changed() -> None:
    arr = ARR(CLASSES, DIM)
    x, target = batch()
    factor = torch.ones((), requires_grad=True)
    product = (factor * arr.mean).sum()
    with companion.backend("simulator"):
        arr(x, target)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()  # type: ignore[no-untyped-call]


def _rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=len(SIZES))
    x, target = batch(sum(SIZES))
    arr, mine = ARR(CLASSES, DIM), x.split(SIZES)[rank].clone().requires_grad_()
    with companion.backend("simulator"):
        loss = arr(mine, target.split(SIZES)[rank])
    loss.backward()
    torch.save((loss.detach(), arr.mean, arr.seen, mine.grad), f"{folder}/{rank}")
    dist.destroy_process_group()


@needs_simulator
def test_of_several_ranks_each_has_its_own_loss_and_all_have_the_same_means(tmp_path: Path) -> None:
    multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=len(SIZES))  # type: ignore[no-untyped-call]
    x, target = batch(sum(SIZES))
    leaf, alone = x.requires_grad_(), ARR(CLASSES, DIM)
    loss = alone(leaf, target)
    loss.backward()
    losses, means, seen, grads = zip(*(torch.load(tmp_path / str(rank)) for rank in range(len(SIZES))), strict=True)
    torch.testing.assert_close(sum(n * part for n, part in zip(SIZES, losses, strict=True)) / sum(SIZES), loss.detach())
    for mean, known in zip(means, seen, strict=True):
        torch.testing.assert_close(mean, alone.mean)
        assert torch.equal(known, alone.seen)
    assert leaf.grad is not None
    together = torch.cat([grad * n / sum(SIZES) for n, grad in zip(SIZES, grads, strict=True)])
    torch.testing.assert_close(together, leaf.grad)


# --- memory and threads ---

NAMES = [name for name in ARR_KERNELS.names if name.endswith("_f32") or name == "arr_finish"]

Case = tuple[Tensor, Tensor, int, list[int] | None]


def cases() -> Iterator[Case]:
    """Packed and not, with classes that go on after a block's list, some with a sample that is not finite."""
    for samples, dim, classes, widths in (
        *((1, 1, 1, None), (37, 5, 3, [2, 3]), (300, 8, 2, None), (520, 4, 300, None), (6, 1100, 2, [1000, 100])),
    ):
        x = inputs(samples, dim)
        if dim % 8 != 4:  # where one is, the loss says nothing
            x[samples // 2, dim // 2] = float("inf")
        yield x, torch.arange(samples) ** 2 % classes, classes, widths


def results(x: Tensor, target: Tensor, classes: int, widths: list[int] | None) -> list[Tensor]:
    """Losses, gradients and means by both rules."""
    found: list[Tensor] = []
    for read, momentum in (("before", 0.1), ("after", 0.75)):
        arr = ARR(classes, x.shape[1], momentum, read)  # type: ignore[arg-type]
        for there in (target, target.flip(0)):
            leaf = x.clone().requires_grad_()
            with companion.backend("simulator"):
                loss = arr.loss(leaf, there, widths)
            (dx,) = torch.autograd.grad(loss, leaf)
            found += [loss.detach().nan_to_num(), dx, arr.mean.clone(), arr.seen.clone()]
    return found


FAULTS: dict[str, dict[str, str]] = {
    "every sample leads": {"if (leads(target, leader)) {": "if (true) {"},
    "the list is not shared": {
        "if (threadIdx.x == 0) members.count = all;\n    __syncthreads();": (
            "if (threadIdx.x == 0) members.count = all;"
        )
    },
    "only the first list": {
        "from = leader; from < samples; from += arr_threads": "from = leader; from < leader + 1; from += arr_threads"
    },
    "out of order": {"place[before + __popc(": "place[all - 1 - before - __popc("},
    "a mean that is forgotten between lists": {"known || moved, {": "known, {"},
    "what is not finite moves": {"if (moves) mu = left;": "mu = left;"},
    "one thread of a warp looks": {"finite = __all_sync(full_warp, finite);": ""},
    "the mean before for the one after": {"pull.after ? left : mu": "mu"},
    "the first is held by zero": {"if (opens) mu = x;": ""},
    "classes that stay unseen": {"if (opened[i]) seen[target[i]] = true;": ""},
    "shares of the first columns": {
        "if (share) {\n            result *= share[column];": ("if (share) {\n            result *= share[0];")
    },
    "all columns weigh the same": {"share ? share[column + j] : 1.0f": "share ? share[0] : 1.0f"},
    "only the first class of the sum": {"i < blocks; i += arr_threads": "i < 2; i += arr_threads"},
}


TestMemoryAndThreads = memory_and_threads(ARR_KERNELS, "COMPANION_KERNELS(f32, float)", NAMES, results, cases, FAULTS)


# --- on a GPU ---


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_two_runs_give_the_same_bits() -> None:
    for x, target, classes, widths in cases():
        found = []
        for _ in range(2):
            arr, leaf = ARR(classes, x.shape[1]).cuda(), x.cuda().requires_grad_()
            with companion.backend("kernel"):
                loss = arr.loss(leaf, target.cuda(), widths)
            found.append([loss.detach().nan_to_num(), *torch.autograd.grad(loss, leaf), arr.mean, arr.seen])
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
