"""ARR: the means of a whole batch at once are those of the loop over its samples, on one process and on several."""

from __future__ import annotations

import copy
import io
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from companion import ARR
from companion.functional import arr_loss

CLASSES, DIM = 7, 5


def walked(arr: ARR, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Eqs. 5 and 6 sample by sample: each one's loss, the means and which classes have one."""
    mean, seen, losses = arr.mean.double(), arr.seen.clone(), []
    for sample, k in zip(x.detach().double(), target.tolist(), strict=True):
        before = mean[k].clone() if seen[k] else sample
        mean[k] = (1 - arr.momentum) * before + arr.momentum * sample
        losses.append((sample - (before if arr.read == "before" else mean[k])).abs().sum() / len(sample))
        seen[k] = True
    return torch.stack(losses), mean, seen


def batch(size: int = 40, classes: int = CLASSES - 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The last class is absent."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, DIM, generator=generator), torch.randint(0, classes, (size,), generator=generator)


@pytest.mark.parametrize("init", ["first", "zero"])
@pytest.mark.parametrize("read", ["before", "after"])
@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.9, 1.0])
def test_a_batch_at_once_is_the_loop_over_its_samples(momentum: float, read: str, init: str) -> None:
    arr = ARR(CLASSES, DIM, momentum, read, init)  # type: ignore[arg-type]
    for seed in range(3):
        x, target = batch(seed=seed)
        losses, mean, seen = walked(arr, x, target)
        torch.testing.assert_close(arr(x, target), losses.mean().float())
        torch.testing.assert_close(arr.mean, mean.float())
        assert torch.equal(arr.seen, seen)


@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.9])
def test_the_mean_after_the_update_is_nearer_and_trains_alike(momentum: float) -> None:
    before, after = ARR(CLASSES, DIM, momentum), ARR(CLASSES, DIM, momentum, read="after")
    for seed in range(2):
        x, target = batch(seed=seed)
        one, other = (x.clone().requires_grad_() for _ in range(2))
        losses = before(one, target), after(other, target)
        for loss in losses:
            loss.backward()
        torch.testing.assert_close(losses[1], (1 - momentum) * losses[0])
        assert one.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(one.grad, other.grad)


def test_the_gradient_is_one_step_towards_the_mean_for_every_element() -> None:
    arr = ARR(2, 2, 0.5, init="zero")
    x = torch.tensor([[3.0, -0.1], [0.0, 8.0]], requires_grad=True)
    arr(x, torch.tensor([0, 1])).backward()
    torch.testing.assert_close(x.grad, torch.tensor([[1.0, -1.0], [0.0, 1.0]]) / 4)


def test_the_loss_is_twice_differentiable_and_that_of_the_function() -> None:
    x, mean = torch.randn(4, 3, dtype=torch.float64, requires_grad=True), torch.randn(3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: arr_loss(x, mean), x)
    assert torch.autograd.gradgradcheck(lambda x: arr_loss(x, mean), x)
    arr = ARR(1, 3, 0.0).double().eval()
    arr.mean.copy_(mean)
    arr.seen.fill_(True)
    torch.testing.assert_close(arr(x, torch.zeros(4, dtype=torch.int64)), arr_loss(x, arr.mean.double()).mean())
    assert arr_loss(x.detach().half(), mean).dtype == torch.float16
    assert torch.vmap(arr_loss, (0, None))(x, mean).shape == (4,)


def test_evaluation_moves_nothing_and_a_class_without_a_mean_costs_nothing() -> None:
    arr = ARR(2, 1)
    arr(torch.tensor([[1.0]]), torch.tensor([0]))
    state = copy.deepcopy(arr.state_dict())
    loss = arr.eval()(torch.tensor([[3.0], [9.0]]), torch.tensor([0, 1]))
    assert loss == 1.0  # (|3 − 1| + 0)/2
    assert all(torch.equal(state[name], value) for name, value in arr.state_dict().items())


def test_the_means_stay_in_32_bits_and_are_saved() -> None:
    arr = ARR(CLASSES, DIM).bfloat16()
    x, target = batch()
    loss = arr(x.bfloat16(), target)
    assert arr.mean.dtype == loss.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert arr(x.bfloat16(), target).dtype == torch.float32
    file = io.BytesIO()
    torch.save(arr.state_dict(), file)
    file.seek(0)
    other = ARR(CLASSES, DIM)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other.eval()(x, target), arr.eval()(x, target))
    arr.reset()
    assert not arr.seen.any()
    assert not arr.mean.any()


def test_the_mean_of_what_never_changes_stays_however_slow_it_is() -> None:
    arr = ARR(1, 1, 1e-5)
    for _ in range(300):
        arr(torch.full((200, 1), 3.0), torch.zeros(200, dtype=torch.int64))
    assert arr.mean.item() == pytest.approx(3.0, rel=1e-5)


def test_targets_of_a_byte_and_responses_near_the_largest_number() -> None:
    arr = ARR(256, 2)
    assert arr(torch.full((2, 2), 3e38), torch.tensor([255, 255], dtype=torch.uint8)).isfinite()
    assert arr.mean[255, 0] == torch.tensor(3e38)
    assert arr.half().mean[255, 0] == torch.tensor(3e38)


def test_a_response_that_is_not_finite_moves_no_mean() -> None:
    arr, clean = ARR(3, 2), ARR(3, 2)
    x, target = torch.randn(6, 2), torch.tensor([0, 1, 1, 0, 2, 0])
    spoilt = x.clone()
    spoilt[2, 0], spoilt[3, 1] = float("nan"), float("inf")
    assert not arr(spoilt, target).isfinite()
    clean(x[[0, 1, 4, 5]], target[[0, 1, 4, 5]])
    torch.testing.assert_close(arr.mean, clean.mean)
    assert torch.equal(arr.seen, clean.seen)


@pytest.mark.parametrize("size", [0, 1])
def test_small_batches(size: int) -> None:
    arr = ARR(3, 2)
    x = torch.ones(size, 2)
    loss = arr(x, torch.full((size,), 2))
    assert loss == 0 if size else loss.isnan()  # a mean over nothing, as torch's losses
    assert arr.seen.tolist() == [False, False, bool(size)]


@pytest.mark.parametrize(
    ("x", "target", "error", "message"),
    [
        (torch.zeros(2, 2), torch.tensor([0, 3]), ValueError, "target: got 0 … 3, allowed is 0 … 2"),
        (torch.zeros(2, 2), torch.tensor([-1, 0]), ValueError, "target: got -1 … 0"),
        (torch.zeros(2, 3), torch.tensor([0, 1]), ValueError, r"x: got shape \(2, 3\), allowed is \(N, 2\)"),
        (torch.zeros(2), torch.tensor([0, 1]), ValueError, "x: got shape"),
        (torch.zeros(2, 2), torch.tensor([0]), ValueError, r"target: got shape \(1,\), allowed is \(2,\)"),
        (torch.zeros(2, 2), torch.tensor([0.0, 1.0]), TypeError, "target: got dtype torch.float32"),
        (torch.zeros(2, 2), torch.tensor([True, False]), TypeError, "target: got dtype torch.bool"),
        (torch.zeros(2, 2), [0, 1], TypeError, "target: got list"),
        (torch.zeros(2, 2, dtype=torch.int64), torch.tensor([0, 1]), TypeError, "x: got dtype torch.int64"),
        (torch.zeros(2, 2, device="meta"), torch.tensor([0, 1]), ValueError, "x: got device meta"),
    ],
)
def test_what_does_not_fit_is_refused_and_no_mean_moves(
    x: Tensor, target: Tensor, error: type[Exception], message: str
) -> None:
    arr = ARR(3, 2)
    arr(torch.randn(4, 2), torch.tensor([0, 0, 1, 2]))
    state = copy.deepcopy(arr.state_dict())
    with pytest.raises(error, match=message):
        arr(x, target)
    assert all(torch.equal(state[name], value) for name, value in arr.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"momentum": 1.1}, ValueError, "momentum: got 1.1, allowed is a number from 0 to 1"),
        ({"momentum": float("nan")}, ValueError, "momentum"),
        ({"momentum": "0.1"}, TypeError, "momentum: got str"),
        ({"num_classes": 0}, ValueError, "num_classes"),
        ({"dim": 2.0}, TypeError, "dim"),
        ({"read": "now"}, ValueError, "read: got 'now', allowed are 'before' and 'after'"),
        ({"init": "last"}, ValueError, "init: got 'last'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ARR(**{"num_classes": 3, "dim": 2, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "mean", "error", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(2), ValueError, "mean: got shape"),
        (torch.zeros(3), torch.zeros(2, 3), ValueError, "mean: got shape"),
        (torch.zeros(2, 0), torch.zeros(0), ValueError, "x: got shape"),
        (torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64), TypeError, "mean: got dtype"),
    ],
)
def test_the_function_refuses_what_does_not_fit(x: Tensor, mean: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        arr_loss(x, mean)


# --- several ranks -------------------------------------------------------------------------------------------------

SIZES = (6, 9)


def _rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=len(SIZES))
    arr = ARR(CLASSES, DIM)
    losses = []
    for seed in range(2):
        x, target = batch(sum(SIZES), seed=seed)
        losses.append(arr(x.split(SIZES)[rank], target.split(SIZES)[rank]))
    torch.save((torch.stack(losses), arr.mean, arr.seen), f"{folder}/{rank}")
    dist.destroy_process_group()


def test_all_ranks_have_the_means_of_one_process_with_their_batches_in_order(tmp_path: Path) -> None:
    multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=len(SIZES))  # type: ignore[no-untyped-call]
    alone = ARR(CLASSES, DIM)
    whole = torch.stack([alone(*batch(sum(SIZES), seed=seed)) for seed in range(2)])
    losses, means, seen = zip(*(torch.load(tmp_path / str(rank)) for rank in range(len(SIZES))), strict=True)
    assert torch.equal(means[0], means[1])
    assert torch.equal(seen[0], seen[1])
    torch.testing.assert_close(means[0], alone.mean)
    assert torch.equal(seen[0], alone.seen)
    # the mean over all samples is that of the ranks' means, weighted by their sizes
    torch.testing.assert_close(sum(n * part for n, part in zip(SIZES, losses, strict=True)) / sum(SIZES), whole)


@pytest.mark.parametrize("reentrant", [False, True])
def test_inside_of_a_checkpoint_it_does_not_move_twice_but_raises(reentrant: bool) -> None:
    arr, (x, target) = ARR(CLASSES, DIM), batch()
    x.requires_grad_()
    loss = checkpoint(lambda x: arr(x.relu(), target), x, use_reentrant=reentrant)
    mean = arr.mean.clone()
    with pytest.raises(RuntimeError, match=r"called during backward, .* where the mean would move twice"):
        loss.backward()
    assert torch.equal(arr.mean, mean)
    checkpoint(lambda x: arr.eval()(x.relu(), target), x, use_reentrant=reentrant).backward()
    assert x.grad is not None
