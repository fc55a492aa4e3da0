"""The modules: equal to their functions, initialised as published, saved and restored."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from companion import AGLU, DACConv2d, DACLinear
from companion.functional import dac_conv2d, dac_linear
from tests.cases import together

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (lambda: DACLinear(5, 7), (3, 5)),
    "convolution": (lambda: DACConv2d(4, 6, 3, padding=1, groups=2), (2, 4, 5, 5)),
    "bias per weight": (lambda: DACConv2d(4, 6, (3, 1), stride=2, per_weight=True), (2, 4, 5, 5)),
}
each = pytest.mark.parametrize("case", MODULES)


def perturbed(layer: nn.Module) -> nn.Module:
    """Biases of its own."""
    with torch.no_grad():
        layer.bias.normal_()  # type: ignore[union-attr,operator]
    return layer


def test_a_module_is_its_function() -> None:
    z = torch.randn(3, 5)
    dense = perturbed(DACLinear(5, 7, "silu"))
    assert torch.equal(dense(z), dac_linear(z, dense.weight, dense.bias, "silu"))
    image = torch.randn(2, 4, 8, 9)
    layer = perturbed(DACConv2d(4, 6, (3, 2), 2, (1, 2), (2, 1), 2, "tanh", "before", per_weight=True))
    expected = dac_conv2d(image, layer.weight, layer.bias, 2, (1, 2), (2, 1), 2, "tanh", "before")
    assert torch.equal(layer(image), expected)


def test_numbers_of_numpy_are_numbers() -> None:
    two, four, three = np.int64(2), np.int32(4), np.uint8(3)
    layer = DACConv2d(four, two, three, stride=(two, 1), padding=np.int64(1), dilation=np.int64(1), groups=two)
    assert layer(torch.zeros(1, 4, 5, 6)).shape == (1, 2, 3, 6)
    assert repr(layer) == repr(DACConv2d(4, 2, 3, stride=(2, 1), padding=1, groups=2))
    assert DACLinear(four, two)(torch.zeros(3, 4)).shape == (3, 2)


@together(
    "parametrise",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        lambda layer: nn.utils.parametrize.register_parametrization(layer, "bias", nn.Tanh()),
    ],
)
def test_its_parameters_may_be_parametrised(parametrise: Callable[[nn.Module], nn.Module]) -> None:
    layer = parametrise(perturbed(DACLinear(3, 4)))
    z = torch.randn(2, 3)
    assert torch.equal(layer(z), dac_linear(z, layer.weight, layer.bias))
    layer(z).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    assert torch.equal(copy.deepcopy(layer.eval())(z), layer(z))


def test_padding_may_be_named() -> None:
    layer = DACConv2d(2, 3, 3, padding="same")
    assert layer(torch.zeros(1, 2, 5, 6)).shape == (1, 3, 5, 6)
    assert layer.padding == "same"


def test_it_begins_with_he_normal_weights_and_no_biases() -> None:
    for layer, fan_in in ((DACLinear(200, 300), 200), (DACConv2d(64, 96, 3, groups=2), 32 * 9)):
        weight = layer.weight.detach()
        # the standard error of a variance of k normal numbers is √(2/k) of it; five of them
        spread = 5 * math.sqrt(2 / weight.numel())
        assert weight.var().item() * fan_in / 2 == pytest.approx(1, abs=spread)
        assert abs(weight.mean().item()) < 5 * math.sqrt(2 / fan_in / weight.numel())
        assert weight.abs().max() > 3.5 * weight.std()  # a uniform distribution ends at √3
        assert not layer.bias.any()


def test_without_biases_it_is_relu_and_a_linear_layer() -> None:
    z = torch.randn(3, 5)
    layer = DACLinear(5, 7)
    torch.testing.assert_close(layer(z), nn.functional.linear(z.relu(), layer.weight))


@pytest.mark.parametrize(
    ("layer", "parameters"),
    [
        (DACLinear(5, 7), 2 * 35),
        (DACConv2d(4, 6, 3), 24 * 9 + 24),
        (DACConv2d(4, 6, 3, groups=2), 12 * 9 + 12),
        (DACConv2d(4, 6, 3, per_weight=True), 2 * 24 * 9),
    ],
    ids=["dense", "per pair", "groups", "per weight"],
)
def test_the_number_of_parameters(layer: nn.Module, parameters: int) -> None:
    assert sum(p.numel() for p in layer.parameters()) == parameters


@each
def test_the_keys_of_the_state_are_a_promise(case: str) -> None:
    assert list(MODULES[case][0]().state_dict()) == ["weight", "bias"]


@each
def test_the_state_comes_back(case: str) -> None:
    make, shape = MODULES[case]
    trained, fresh = perturbed(make()), make()
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    z = torch.randn(shape)
    for other in (fresh, copy.deepcopy(trained), pickle.loads(pickle.dumps(trained))):
        assert torch.equal(other(z), trained(z))


def test_a_state_of_another_shape_is_refused() -> None:
    with pytest.raises(RuntimeError, match="size mismatch for bias"):
        DACConv2d(4, 6, 3).load_state_dict(DACConv2d(4, 6, 3, per_weight=True).state_dict())


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_it_changes_its_dtype(case: str, dtype: torch.dtype) -> None:
    make, shape = MODULES[case]
    layer = perturbed(make()).to(dtype)
    f = layer(torch.randn(shape, dtype=dtype))
    assert f.dtype == dtype
    f.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == dtype for p in layer.parameters())


@pytest.mark.parametrize("make", [lambda **k: DACLinear(3, 4, **k), lambda **k: DACConv2d(3, 4, 2, **k)])
def test_device_and_dtype_are_those_of_the_parameters(make: Callable[..., nn.Module]) -> None:
    for p in make(device="meta", dtype=torch.float64).parameters():
        assert (p.device.type, p.dtype) == ("meta", torch.float64)


def test_an_activation_with_parameters_learns_and_is_saved() -> None:
    layer = perturbed(DACLinear(3, 4, AGLU()))
    assert set(layer.state_dict()) > {"weight", "bias"}
    assert {name for name, _ in layer.named_parameters() if name.startswith("activation.")}
    layer(torch.randn(5, 3)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in layer.parameters())


def test_it_says_what_it_is() -> None:
    assert repr(DACLinear(3, 4)) == "DACLinear(3, 4, activation='relu')"
    assert repr(DACLinear(3, 4, torch.tanh)) == "DACLinear(3, 4, activation=tanh)"
    assert repr(DACConv2d(2, 4, 3, padding=1, groups=2, per_weight=True)) == (
        "DACConv2d(2, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=2, "
        "activation='relu', pad_order='after', per_weight=True)"
    )


BAD: dict[str, tuple[Callable[[], nn.Module], type[Exception], str]] = {
    "activation": (lambda: DACLinear(2, 3, "swish"), ValueError, "activation: got 'swish', allowed are 'relu'"),
    "no activation": (lambda: DACLinear(2, 3, None), TypeError, "activation: got NoneType"),  # type: ignore[arg-type]
    "negative size": (lambda: DACLinear(-1, 3), ValueError, r"in_features, out_features: got \(-1, 3\)"),
    "a float": (lambda: DACLinear(2, 3.0), TypeError, "in_features, out_features: got"),  # type: ignore[arg-type]
    "kernel": (lambda: DACConv2d(2, 3, 0), ValueError, "kernel_size: got 0, allowed is at least 1"),
    "groups": (lambda: DACConv2d(4, 6, 3, groups=4), ValueError, "groups: got 4, which does not divide"),
    "stride": (lambda: DACConv2d(4, 6, 3, stride=0), ValueError, "stride: got 0"),
    "same": (lambda: DACConv2d(4, 6, 2, padding="same"), ValueError, "padding: got 'same'"),
    "per weight": (lambda: DACConv2d(4, 6, 3, per_weight="no"), TypeError, "per_weight: got 'no', allowed"),  # type: ignore[arg-type]
    "dtype": (lambda: DACLinear(4, 6, dtype=torch.int64), TypeError, "dtype: got torch.int64, allowed is a floating"),
    "pad order": (lambda: DACConv2d(4, 6, 3, pad_order="x"), ValueError, "pad_order: got 'x'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused_at_construction(case: str) -> None:
    make, error, message = BAD[case]
    with pytest.raises(error, match=message):
        make()


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    y = model(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), list(model.parameters()))]


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_trains_as_in_eager() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), DACConv2d(4, 3, 3), nn.BatchNorm2d(3), DACConv2d(3, 2, 1), nn.Flatten(), DACLinear(8, 3)
    )
    x = torch.randn(5, 2, 6, 6)
    eager = gradients(model, x)
    for one, other in zip(gradients(torch.compile(model, fullgraph=True), x), eager, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_network_learns_with_it(backend: str, device: str) -> None:
    x = torch.randn(64, 2, device=device)
    target = (x.prod(1, keepdim=True) > 0).float()
    model = nn.Sequential(nn.Linear(2, 12), DACLinear(12, 12), DACLinear(12, 1)).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(60):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
