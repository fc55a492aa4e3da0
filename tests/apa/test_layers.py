"""The modules: parameters that can always be learned, keys that never change, attention equal to its definition."""

from __future__ import annotations

import copy
import io
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import companion
from companion import AGLU, APA, ChannelAttention, SpatialAttention, SpatialChannelAttention, parameter_groups
from companion.apa.layers import INITIALISATIONS, SMALLEST_INITIAL_LAM, inverse_softplus
from companion.baselines import Gumbel, gumbel
from companion.functional import aglu, apa

MODULES = [APA, AGLU]
either = pytest.mark.parametrize("module", MODULES)

# --- what they compute ---


@either
@pytest.mark.parametrize(("channels", "dim", "shape"), [(1, 1, (4, 3)), (3, 1, (4, 3, 5)), (5, -1, (4, 3, 5))])
def test_a_module_is_its_function(module: type[nn.Module], channels: int, dim: int, shape: tuple[int, ...]) -> None:
    layer = module(channels, dim)
    z = torch.randn(shape)
    function = apa if module is APA else aglu
    assert torch.equal(layer(z), function(z, layer.kappa, layer.lam, dim))
    assert layer.kappa.shape == layer.lam.shape == (() if channels == 1 else (channels,))


def test_members_of_the_family_with_a_name() -> None:
    z = torch.linspace(-8, 8, 1001)
    torch.testing.assert_close(APA(init="sigmoid")(z), torch.sigmoid(z), rtol=2e-5, atol=1e-7)
    torch.testing.assert_close(AGLU(init="silu")(z), nn.functional.silu(z), rtol=2e-5, atol=1e-7)
    assert 0.0195 < (AGLU(init="gelu")(z) - nn.functional.gelu(z)).abs().max() < 0.021


@either
def test_the_output_has_the_dtype_of_the_input(module: type[nn.Module]) -> None:
    for dtype in (torch.bfloat16, torch.float64):
        assert module()(torch.zeros(2, 3, dtype=dtype)).dtype == dtype
        assert module(3, dtype=dtype)(torch.zeros(2, 3)).dtype == torch.float32


# --- λ stays positive and can always be learned ---


@either
@pytest.mark.parametrize("raw", [-80.0, -30.0, -13.8, -1.0, 0.0, 10.0, 1e3, 1e4])
def test_lambda_is_positive_and_has_a_gradient_wherever_its_raw_value_is(module: type[nn.Module], raw: float) -> None:
    layer = module(init=(1.0, 1.0))
    with torch.no_grad():
        layer.raw_lam.fill_(raw)
    assert layer.lam > 0
    layer(torch.tensor([0.3, 1.0])).sum().backward()
    assert layer.raw_lam.grad.isfinite()
    assert layer.raw_lam.grad != 0
    assert layer.kappa.grad.isfinite()


@either
@pytest.mark.parametrize("start", [1e-6, 5.0])
def test_lambda_is_found_again_from_far_away(module: type[nn.Module], start: float) -> None:
    z = torch.linspace(-4, 4, 200)
    target = (apa if module is APA else aglu)(z, 1.0, 1.0)
    layer = module(init=(1.0, start))
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.2)
    for _ in range(400):
        optimiser.zero_grad()
        (layer(z) - target).square().mean().backward()
        optimiser.step()
        assert layer.lam > 0
    assert layer.lam.item() == pytest.approx(1, abs=0.02)
    assert layer.kappa.item() == pytest.approx(1, abs=0.02)


def test_the_inverse_of_softplus_is_exact_over_nine_decades() -> None:
    lam = torch.logspace(-6, 3, 1000, dtype=torch.float64)
    # softplus of torch is the identity above 20, to 2e-9
    torch.testing.assert_close(nn.functional.softplus(inverse_softplus(lam)), lam, rtol=1e-9, atol=0)


# --- initialisation ---


@either
@pytest.mark.parametrize("name", INITIALISATIONS)
def test_an_initialisation_lies_in_its_range_and_fills_it(module: type[nn.Module], name: str) -> None:
    torch.manual_seed(0)
    layer = module(4000, init=name)
    with torch.no_grad():
        for values, (low, high), smallest in zip(
            (layer.kappa, layer.lam), INITIALISATIONS[name], (-math.inf, SMALLEST_INITIAL_LAM), strict=True
        ):
            low = max(low, smallest)
            assert values.min() >= low - 1e-6
            assert values.max() <= high + 1e-6
            assert values.max() - values.min() >= 0.99 * (high - low)
            assert values.mean().item() == pytest.approx((low + high) / 2, abs=0.02 * (high - low) + 1e-6)


def test_the_initialisations_are_those_of_the_paper() -> None:
    assert INITIALISATIONS["near_one"] == ((0.8, 1.2), (0.8, 1.2))
    assert INITIALISATIONS["aglu"] == ((1.0, 1.3), (0.0, 1.0))
    assert INITIALISATIONS["apa_balanced"] == ((0.0, 1.0), (0.0, 1.0))
    assert INITIALISATIONS["apa_long_tailed"] == ((-1.0, 0.0), (0.0, 1.0))


@either
def test_an_initialisation_may_be_two_numbers(module: type[nn.Module]) -> None:
    layer = module(3, init=(-0.5, 1e-6))
    assert layer.kappa.tolist() == [-0.5] * 3
    torch.testing.assert_close(layer.lam, torch.full((3,), 1e-6), rtol=1e-5, atol=0)


@either
def test_the_seed_decides_the_initialisation(module: type[nn.Module]) -> None:
    def state() -> list[float]:
        layer = module(3)
        return [*layer.kappa.tolist(), *layer.raw_lam.tolist()]

    torch.manual_seed(1)
    first, second = state(), state()
    torch.manual_seed(1)
    assert (state(), state()) == (first, second)
    assert first != second


@either
def test_reset_parameters_draws_anew(module: type[nn.Module]) -> None:
    layer = module(3)
    before = layer.kappa.tolist()
    layer.reset_parameters()
    assert layer.kappa.tolist() != before


@either
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"init": "relu"}, "init: got 'relu', allowed are near_one, aglu,"),
        ({"init": (1.0, 0.0)}, "init: got lam = 0.0, allowed is a number > 0"),
        ({"init": (1.0, -1.0)}, "init: got lam = -1.0, allowed is a number > 0"),
        ({"init": (1.0, math.nan)}, "init: got lam = nan, allowed is a number > 0"),
        ({"init": (math.nan, 1.0)}, "init: got kappa = nan, allowed is a finite number"),
        ({"init": (1.0, math.inf)}, "init: got lam = inf, allowed is a number > 0"),
        ({"num_parameters": 0}, "num_parameters: got 0, allowed is at least 1"),
    ],
)
def test_bad_arguments_are_refused(module: type[nn.Module], arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        module(**arguments)


@either
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"init": 0.5}, "init: got 0.5, allowed are near_one,"),
        ({"init": None}, "init: got None, allowed are near_one,"),
        ({"init": (1.0,)}, "init: got (1.0,), allowed are near_one,"),
        ({"init": (1.0, "1")}, "init: got str, allowed is a number"),
        ({"num_parameters": 64.0}, "num_parameters: got 64.0, allowed is an int"),
        ({"num_parameters": True}, "num_parameters: got True, allowed is an int"),
        ({"dim": "channels"}, "dim: got 'channels', allowed is an int"),
        ({"dtype": torch.int64}, "dtype: got torch.int64, allowed is a floating dtype"),
    ],
)
def test_arguments_of_another_kind_are_refused(
    module: type[nn.Module], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        module(**arguments)


@either
def test_numbers_of_numpy_and_inplace_are_accepted(module: type[nn.Module]) -> None:
    layer = module(np.int64(3), dim=np.int32(-1), init=(np.float32(1), 1), inplace=True)
    z = torch.randn(2, 3)
    before = z.clone()
    assert layer(z).shape == (2, 3)
    assert torch.equal(z, before)


@either
def test_the_wrong_number_of_channels_is_refused(module: type[nn.Module]) -> None:
    with pytest.raises(ValueError, match=r"kappa: got shape \(3,\), .* or shape \(4,\)"):
        module(3)(torch.zeros(2, 4))


# --- optimiser, state and copies ---


def small_model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), AGLU(4), ChannelAttention.apa_star(4, 2), nn.Flatten(), nn.Linear(64, 3), APA()
    )


def test_kappa_and_lambda_are_not_decayed() -> None:
    model = small_model()
    decayed, exempt = parameter_groups(model, 1e-2)
    assert (decayed["weight_decay"], exempt["weight_decay"]) == (1e-2, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    adaptive = {name for name in names.values() if name.rsplit(".", 1)[1] in ("kappa", "raw_lam")}
    assert {names[id(p)] for p in exempt["params"]} == adaptive
    assert len(adaptive) == 6
    assert len(decayed["params"]) + len(exempt["params"]) == len(names)


KEYS: dict[str, tuple[Callable[[], nn.Module], set[str]]] = {
    "APA": (APA, {"kappa", "raw_lam"}),
    "AGLU": (lambda: AGLU(7), {"kappa", "raw_lam"}),
    "ChannelAttention": (
        lambda: ChannelAttention(32),
        {"reduce.weight", "reduce.bias", "expand.weight", "expand.bias"},
    ),
    "APA*": (
        lambda: ChannelAttention.apa_star(32),
        {
            *("reduce.weight", "reduce.bias", "expand.weight", "expand.bias"),
            *("norm.weight", "norm.bias", "gate.kappa", "gate.raw_lam"),
        },
    ),
    "SpatialAttention": (
        lambda: SpatialAttention(gate="apa"),
        {"conv.weight", "conv.bias", "gate.kappa", "gate.raw_lam"},
    ),
    "SpatialChannelAttention": (
        lambda: SpatialChannelAttention(32),
        {
            *("channel.reduce.weight", "channel.reduce.bias", "channel.expand.weight", "channel.expand.bias"),
            *("spatial.conv.weight", "spatial.conv.bias"),
        },
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_the_keys_of_a_state_dict_are_promises(name: str) -> None:
    make, keys = KEYS[name]
    assert set(make().state_dict()) == keys


def test_a_scalar_parameter_has_no_dimension_in_the_state_dict() -> None:
    assert AGLU().state_dict()["kappa"].shape == ()
    assert AGLU(1).state_dict()["raw_lam"].shape == ()
    assert AGLU(5).state_dict()["kappa"].shape == (5,)


def copied_by_state_dict(model: nn.Module) -> nn.Module:
    other = small_model()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "state dict": copied_by_state_dict,
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_computes_the_same(way: str) -> None:
    model = small_model().eval()
    x = torch.randn(5, 2, 6, 6)
    other = COPIES[way](model).eval()
    assert torch.equal(other(x), model(x))
    with torch.no_grad():
        next(other.parameters()).zero_()
    assert not torch.equal(other(x), model(x))


@either
def test_a_module_can_be_pickled(module: type[nn.Module]) -> None:
    layer = module(3)
    other = pickle.loads(pickle.dumps(layer))
    assert torch.equal(other.kappa, layer.kappa)
    assert (other.num_parameters, other.dim, other.init) == (3, 1, "near_one")


def test_a_whole_model_can_be_saved(tmp_path: Path) -> None:
    model = small_model().eval()
    torch.save(model, tmp_path / "model.pt")
    other = torch.load(tmp_path / "model.pt", weights_only=False)
    x = torch.randn(2, 2, 6, 6)
    assert torch.equal(other(x), model(x))


def test_a_model_may_be_cast_to_16_bits_and_moved() -> None:
    model = small_model().eval()
    x = torch.randn(5, 2, 6, 6)
    expected = model(x)
    y = model.to(torch.bfloat16)(x.bfloat16())
    assert y.dtype == torch.bfloat16
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    torch.testing.assert_close(y.float(), expected, rtol=0.1, atol=0.05)
    assert small_model().to("meta")(x.to("meta")).shape == (5, 3)


def test_parameters_are_made_where_they_are_asked_for() -> None:
    layer = AGLU(3, device="meta", dtype=torch.float64)
    assert {(p.device.type, p.dtype) for p in layer.parameters()} == {("meta", torch.float64)}


@either
def test_its_text_says_what_it_is(module: type[nn.Module]) -> None:
    assert repr(module(3, -1, "aglu")) == f"{module.__name__}(num_parameters=3, dim=-1, init='aglu')"


# --- attention ---


@pytest.mark.parametrize("gate", ["sigmoid", "gumbel", "apa"])
@pytest.mark.parametrize("shape", [(4, 8), (4, 8, 5), (4, 8, 3, 5), (4, 8, 2, 3, 2)], ids=str)
def test_channel_attention_is_squeeze_and_excite(gate: str, shape: tuple[int, ...]) -> None:
    layer = ChannelAttention(8, reduction=4, gate=gate)
    x = torch.randn(shape)
    squeezed = x.reshape(4, 8, -1).mean(2)
    hidden = (squeezed @ layer.reduce.weight.t() + layer.reduce.bias).clamp(min=0)
    excitation = hidden @ layer.expand.weight.t() + layer.expand.bias
    if gate == "apa":
        weights = apa(excitation, layer.gate.kappa, layer.gate.lam)
    else:
        weights = {"sigmoid": torch.sigmoid, "gumbel": gumbel}[gate](excitation)
    torch.testing.assert_close(layer.attention(x), weights)
    torch.testing.assert_close(layer(x), x * weights.view(4, 8, *(1,) * (len(shape) - 2)))
    assert layer.reduce.out_features == 2


def test_apa_star_has_apa_layer_norm_and_dropout_of_one_tenth() -> None:
    layer = ChannelAttention.apa_star(32, 8, init="apa_long_tailed")
    assert isinstance(layer.gate, APA)
    assert layer.gate.init == "apa_long_tailed"
    assert isinstance(layer.norm, nn.LayerNorm)
    assert layer.norm.normalized_shape == (32,)
    assert layer.dropout.p == 0.1
    x = torch.randn(64, 32)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    # LayerNorm sees what the last linear layer gives: mean 0 and variance 1 over the channels
    excitation = layer.norm(layer.expand(layer.reduce(x).relu()))
    torch.testing.assert_close(excitation.mean(1), torch.zeros(64), rtol=0, atol=1e-5)
    torch.testing.assert_close(layer.attention(x), layer.gate(excitation))


def test_without_options_channel_attention_is_deterministic() -> None:
    layer = ChannelAttention(32)
    x = torch.randn(4, 32)
    assert torch.equal(layer(x), layer(x))


def test_a_gate_may_be_any_module() -> None:
    layer = ChannelAttention(4, gate=nn.Hardsigmoid)
    assert isinstance(layer.gate, nn.Hardsigmoid)
    assert isinstance(ChannelAttention(4, gate="gumbel").gate, Gumbel)


def test_few_channels_leave_one_hidden_unit() -> None:
    assert ChannelAttention(4, reduction=16).reduce.out_features == 1


def test_an_attention_names_what_it_refuses() -> None:
    with pytest.raises(TypeError, match=r"gate: got Sigmoid\(\), allowed are .* or a factory of a module"):
        SpatialAttention(gate=nn.Sigmoid())
    with pytest.raises(ValueError, match="gate: got 'relu', allowed are 'sigmoid', 'gumbel', 'apa' or a factory"):
        ChannelAttention(4, gate="relu")
    with pytest.raises(ValueError, match=r"x: got shape \(2, 5, 3\), allowed is \(N, 4, \.\.\.\)"):
        ChannelAttention(4)(torch.zeros(2, 5, 3))
    with pytest.raises(ValueError, match="kernel_size: got 4, allowed is an odd number"):
        SpatialAttention(4)


@pytest.mark.parametrize("gate", ["sigmoid", "gumbel", "apa"])
def test_spatial_attention_gates_a_convolution_of_mean_and_maximum(gate: str) -> None:
    layer = SpatialAttention(3, gate)
    x = torch.randn(2, 6, 5, 7)
    summary = torch.stack([x.mean(1), x.max(1).values], 1)
    weights = layer.gate(nn.functional.conv2d(summary, layer.conv.weight, layer.conv.bias, padding=1))
    assert weights.shape == (2, 1, 5, 7)
    torch.testing.assert_close(layer.attention(x), weights)
    torch.testing.assert_close(layer(x), x * weights)


def test_spatial_channel_attention_is_one_after_the_other() -> None:
    layer = SpatialChannelAttention(8, reduction=4, kernel_size=3, gate="apa")
    x = torch.randn(2, 8, 5, 5)
    assert torch.equal(layer(x), layer.spatial(layer.channel(x)))
    assert layer.channel.gate is not layer.spatial.gate


def trained_gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    y = model(x)
    y.square().sum().backward()
    return [y.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_trains_as_in_eager() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), AGLU(4), ChannelAttention(4, 2, gate="apa"), nn.Flatten(), nn.Linear(64, 3)
    )
    x = torch.randn(5, 2, 6, 6)
    eager = trained_gradients(model, x)
    compiled = torch.compile(model, fullgraph=True)
    for one, other in zip(trained_gradients(compiled, x), eager, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_model_runs_through_every_backend(backend: str, device: str) -> None:
    model = small_model().eval().to(device)
    x = torch.randn(5, 2, 6, 6, device=device)
    with companion.backend("torch"):
        expected = trained_gradients(model, x)
    for one, other in zip(trained_gradients(model, x), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
