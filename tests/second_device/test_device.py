"""The second device refuses what CUDA refuses, computes what the CPU computes, and counts what is alive."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.cases import together
from tests.second_device import device

MIXED = "Expected all tensors to be on the same device"


def there(x: Tensor) -> Tensor:
    """On the second device."""
    return x.to(device.NAME)


def ones(*shape: int) -> Tensor:
    """On the second device, too."""
    return torch.ones(*shape, device=device.NAME)


REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: ones(3).numpy(), TypeError, "can't convert elsewhere:0 device type tensor to numpy"),
    (lambda: np.asarray(ones(3)), TypeError, "can't convert"),
    (lambda: torch.ones(3)[ones(3) > 0], RuntimeError, MIXED),
    (lambda: ones(3) + torch.ones(3), RuntimeError, MIXED),
    (lambda: torch.zeros(()).add_(ones(3).sum()), RuntimeError, MIXED),
    (lambda: torch.cat([ones(3), torch.ones(3)]), RuntimeError, MIXED),
    (lambda: ones(2, 2) @ torch.ones(2, 2), RuntimeError, MIXED),
    (lambda: torch.isin(torch.arange(3), ones(3)), RuntimeError, MIXED),
    (lambda: nn.Linear(2, 2)(ones(2, 2)), RuntimeError, MIXED),
    (lambda: torch.rand(3, device=device.NAME, generator=torch.Generator()), RuntimeError, "device type for generator"),
    (lambda: torch.linalg.lstsq(ones(3, 1), ones(3, 1), driver="gelsd"), RuntimeError, "driver"),
    (lambda: ones(1, 3).squeeze_(), NotImplementedError, "shape"),
]


@together("work, kind, message", REFUSED, of=lambda case: case[2])
def test_it_refuses(work: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        work()


ALLOWED: list[tuple[Callable[[], Tensor], Callable[[], Tensor]]] = [
    (lambda: ones(3) + torch.tensor(1.0), lambda: torch.full((3,), 2.0)),
    (lambda: there(torch.arange(3))[torch.tensor([2, 0])], lambda: torch.tensor([2, 0])),
    (lambda: ones(3).masked_fill(ones(3) > 0, torch.tensor(2.0)), lambda: torch.full((3,), 2.0)),
    (lambda: torch.tensor([1.0, 2.0], device=device.NAME), lambda: torch.tensor([1.0, 2.0])),
    (lambda: torch.zeros(3).copy_(ones(3)), lambda: torch.ones(3)),
    (lambda: ones(3).copy_(torch.zeros(3)), lambda: torch.zeros(3)),
    (lambda: torch.tensor(ones(3).tolist()), lambda: torch.ones(3)),
    (lambda: torch.tensor(float(f"{ones(3).sum():.1f}")), lambda: torch.tensor(3.0)),
    (lambda: torch.from_numpy(ones(3).numpy(force=True)), lambda: torch.ones(3)),
    (
        lambda: torch.rand(3, device=device.NAME, generator=torch.Generator(device.NAME).manual_seed(5)),
        lambda: torch.rand(3, generator=torch.Generator().manual_seed(5)),
    ),
]


@together("work, wanted", ALLOWED)
def test_it_allows(work: Callable[[], Tensor], wanted: Callable[[], Tensor]) -> None:
    torch.testing.assert_close(work().cpu(), wanted())


def test_a_network_learns_as_it_does_on_the_cpu() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(36, 5))
    images, targets = torch.randn(6, 3, 8, 8), torch.arange(6) % 5
    losses: dict[str, list[float]] = {}
    for place in ("cpu", device.NAME):
        model = copy.deepcopy(network).to(place)
        rule = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(3):
            loss = nn.functional.cross_entropy(model(images.to(place)), targets.to(place))
            rule.zero_grad()
            loss.backward()
            rule.step()
            losses.setdefault(place, []).append(float(loss.detach()))
        assert all(p.device.type == place for p in model.parameters())
        assert all(p.device.type == place for p in copy.deepcopy(model).parameters())
    assert losses["cpu"] == losses[device.NAME]
    assert losses["cpu"][-1] < losses["cpu"][0]


def test_memory_is_counted_as_long_as_it_is_held_once_for_all_its_views() -> None:
    before = device.Memory.live
    x = ones(1000)
    view = x.view(10, 100)[2:]
    assert device.Memory.live - before == 4000
    y = (x.requires_grad_() * 2).exp()  # keeps what it has computed for its gradient
    assert device.Memory.live - before == 8000
    device.Memory.restart()
    del y, x
    assert device.Memory.live - before == 4000
    del view
    assert device.Memory.live == before
    assert device.Memory.restart() - before == 8000


def test_without_numbers_a_network_of_any_size_runs_and_memory_is_the_same() -> None:
    def peak(images: int) -> int:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).to(device.NAME)
        device.Memory.restart()
        x = torch.ones(1, 3, 8, 8).expand(images, -1, -1, -1).to(device.NAME)
        loss = nn.functional.cross_entropy(model(x), torch.zeros(images, dtype=torch.int64).to(device.NAME))
        loss.backward()
        assert float(loss.detach()) >= 0
        assert model(x[:5]).argmax(1).cpu().shape == (5,)
        assert x[x > 0].ndim == 1
        return device.Memory.restart()

    with_numbers = peak(50)
    with device.without_numbers():
        assert peak(50) == with_numbers
        assert peak(5_000_000) > 5 * 10**6 * 4 * 36 * 8 * 2


def test_what_is_invented_mixes_no_better() -> None:
    with device.without_numbers(), pytest.raises(RuntimeError, match=MIXED):
        ones(3) + torch.ones(3)
