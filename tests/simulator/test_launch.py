"""A wrong launch is refused before anything runs; the message says what came and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from companion import simulator

KERNELS = ("scale", "coordinates", "triple_bf16", "every_kind", "dynamic_bytes")


@pytest.fixture(scope="module")
def module() -> simulator.Module:
    return simulator.load(Path(__file__).parent / "kernels.cu", KERNELS)


def refusal(module: simulator.Module, error: type[Exception], *launch: Any, **options: Any) -> str:
    with pytest.raises(error) as caught:
        module.launch(*launch, **options)
    return str(caught.value)


def arguments(**changes: Any) -> list[Any]:
    """What ``scale`` takes, with changes."""
    given = {"x": torch.zeros(4), "y": torch.zeros(4), "a": np.float32(1), "n": np.int32(4), **changes}
    return list(given.values())


def test_a_good_launch_is_not_refused(module: simulator.Module) -> None:
    module.launch("scale", (1,), (32,), arguments())


def test_an_unknown_kernel(module: simulator.Module) -> None:
    message = refusal(module, ValueError, "scales", (1,), (1,), [])
    assert message.startswith("name: got 'scales', allowed are 'scale', 'coordinates'")


def test_a_wrong_number_of_arguments(module: simulator.Module) -> None:
    message = refusal(module, TypeError, "scale", (1,), (1,), arguments()[:3])
    assert message == "args: got 3, kernel scale takes 4"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"a": 1.0}, r"args\[2\]: got float, allowed is a NumPy scalar .*: floating-point of 4 bytes"),
        ({"a": np.float64(1)}, r"args\[2\]: got float64, the kernel takes floating-point of 4 bytes"),
        ({"a": np.int32(1)}, r"args\[2\]: got int32, the kernel takes floating-point of 4 bytes"),
        ({"n": np.int64(4)}, r"args\[3\]: got int64, the kernel takes integer of 4 bytes"),
        ({"n": None}, r"args\[3\]: got NoneType, allowed is a NumPy scalar"),
        ({"x": np.float32(1)}, r"args\[0\]: got float32, allowed for a pointer is a torch.Tensor or None"),
        ({"x": np.zeros(4, np.float32)}, r"args\[0\]: got ndarray"),
        (
            {"x": torch.zeros(4, dtype=torch.float64)},
            r"args\[0\]: got a tensor of torch.float64, .* of 4 bytes",
        ),
        ({"x": torch.zeros(4, dtype=torch.int32)}, r"args\[0\]: got a tensor of torch.int32"),
    ],
)
def test_an_argument_of_the_wrong_type(module: simulator.Module, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        module.launch("scale", (1,), (1,), arguments(**changes))


def test_a_tensor_with_gaps_or_on_another_device(module: simulator.Module) -> None:
    for tensor in (torch.zeros(8)[::2], torch.zeros(1).expand(4), torch.zeros(4, device="meta")):
        message = refusal(module, ValueError, "scale", (1,), (1,), arguments(x=tensor))
        assert message.startswith("args[0]: got")


def test_a_tensor_in_another_order_of_dimensions_has_no_gaps(module: simulator.Module) -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = torch.zeros_like(x)
    module.launch("scale", (1,), (120,), [x, y, np.float32(2), np.int32(120)])
    assert torch.equal(y, 2 * x)


def test_an_empty_tensor_is_an_argument_like_any_other(module: simulator.Module) -> None:
    module.launch("scale", (1,), (32,), arguments(x=torch.zeros(0), y=torch.zeros(3, 0), n=np.int32(0)))


def test_bytes_go_to_any_pointer(module: simulator.Module) -> None:
    memory = torch.zeros(16, dtype=torch.uint8)
    module.launch("scale", (1,), (4,), arguments(x=torch.ones(4), y=memory))
    assert memory.view(torch.float32).tolist() == [1] * 4


@pytest.mark.parametrize("block", [(1025,), (32, 33), (0,), (1, 1, 65), (-1,)])
def test_a_block_of_impossible_size(module: simulator.Module, block: tuple[int, ...]) -> None:
    assert refusal(module, ValueError, "scale", (1,), block, arguments()).startswith(f"block: got {block}")


def test_a_grid_of_impossible_size(module: simulator.Module) -> None:
    assert refusal(module, ValueError, "scale", (1, 65536), (1,), arguments()).startswith("grid: got (1, 65536)")
    assert refusal(module, ValueError, "scale", (0,), (1,), arguments()).startswith("grid: got (0,)")
    assert refusal(module, TypeError, "scale", 4, (1,), arguments()).startswith("grid: got 4")
    assert refusal(module, TypeError, "scale", (1,) * 4, (1,), arguments()).startswith("grid: got (1, 1, 1, 1)")


def test_too_much_shared_memory(module: simulator.Module) -> None:
    message = refusal(module, ValueError, "scale", (1,), (1,), arguments(), shared_bytes=227 * 1024 + 1)
    assert message == "shared_bytes: got 232449, allowed are 0 to 232448"


@pytest.mark.parametrize("order", ["random", "shuffled:x", "natural:3", ""])
def test_an_unknown_order(module: simulator.Module, order: str) -> None:
    message = refusal(module, ValueError, "scale", (1,), (1,), arguments(), order=order)
    assert message.startswith(f"order: got {order!r}, allowed are 'natural'")


def test_the_environment_gives_the_order_and_the_number_of_workers(
    module: simulator.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPANION_SIMULATOR_ORDER", "backwards")
    message = refusal(module, ValueError, "scale", (1,), (1,), arguments())
    assert message.startswith("COMPANION_SIMULATOR_ORDER: got 'backwards'")
    monkeypatch.setenv("COMPANION_SIMULATOR_ORDER", "reversed")
    monkeypatch.setenv("COMPANION_SIMULATOR_THREADS", "none")
    message = refusal(module, ValueError, "scale", (1,), (1,), arguments())
    assert message.startswith("COMPANION_SIMULATOR_THREADS: got 'none'")
