import pytest
import torch
from scipy import stats
from torch import fx, nn
from torch.func import functional_call, vmap

from companion import (
    AGLU,
    RAA,
    ChannelAttention,
    MultiArgument,
    SpatialChannelAttention,
    count,
    parameter_groups,
    replace_activations,
)
from companion.baselines import GDN, GLU, ExtraLinear, Gumbel, Maxout, MultiBias, PReLU, SwiGLU, Swish, gumbel
from companion.study import models
from tests.cases import together


def test_it_is_the_gumbel_distribution_function():
    z = torch.linspace(-6, 30, 200, dtype=torch.float64, requires_grad=True)
    reference = torch.tensor(stats.gumbel_r.cdf(z.detach().numpy()))
    torch.testing.assert_close(gumbel(z).detach(), reference, rtol=1e-12, atol=0)
    assert torch.autograd.gradcheck(gumbel, (z,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_extreme_inputs_give_limits_and_finite_gradients(dtype):
    z = torch.tensor([-torch.inf, -1e4, -100.0, -20.0, 100.0, 1e4, torch.inf], dtype=dtype, requires_grad=True)
    value = gumbel(z)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    assert value.dtype == dtype
    assert value.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert gradient.float().abs().max() < 1e-30


def test_nan_stays_nan_and_integers_are_refused():
    assert gumbel(torch.tensor(torch.nan)).isnan()
    with pytest.raises(TypeError, match=r"z: got dtype torch\.int64"):
        gumbel(torch.tensor([1]))


def test_the_module_is_the_function():
    z = torch.randn(5)
    assert torch.equal(Gumbel()(z), gumbel(z))


def test_kernels_of_attention_and_of_recurrent_layers_are_decayed_too():
    model = torch.nn.ModuleList([torch.nn.MultiheadAttention(4, 2), torch.nn.LSTM(4, 3), torch.nn.LayerNorm(4)])
    decayed, _ = parameter_groups(model, 0.1, "kernels")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert {names[id(parameter)] for parameter in decayed["params"]} == {
        *("0.in_proj_weight", "0.out_proj.weight", "1.weight_ih_l0", "1.weight_hh_l0")
    }


def test_parametrised_tensors_are_decayed_as_what_they_are():
    norm, old = torch.nn.utils.parametrizations.weight_norm, torch.nn.utils.weight_norm
    spectral = torch.nn.utils.parametrizations.spectral_norm
    layers = norm(torch.nn.Linear(4, 3)), old(torch.nn.Linear(4, 3)), spectral(torch.nn.Linear(4, 3)), MultiArgument()
    model = torch.nn.ModuleList(layers)
    decayed, _ = parameter_groups(model, 0.1, "kernels")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert {names[id(parameter)] for parameter in decayed["params"]} == {
        *("0.parametrizations.weight.original1", "1.weight_v", "2.parametrizations.weight.original"),
    }


def test_a_parametrised_slope_stays_exempt():
    class Positive(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.softplus(x)

    layer = AGLU()
    torch.nn.utils.parametrize.register_parametrization(layer, "kappa", Positive())
    [spared] = parameter_groups(layer, 0.1)
    assert spared["weight_decay"] == 0
    assert len(spared["params"]) == 2


def test_prelu_exempts_its_slope_from_decay():
    layer = PReLU()
    assert [name for name, _ in layer.named_parameters()] == list(layer.no_weight_decay)
    assert layer(torch.tensor([-4.0])).item() == -1.0
    assert layer.bfloat16()(torch.tensor([-4.0])).dtype == torch.float32  # as within a DAC, which computes in it


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 7), (5, 3, 7, 2)])
def test_multi_bias_copies_biases_and_activates(shape):
    layer = MultiBias(3, 2).double()
    torch.nn.init.normal_(layer.bias)
    z = torch.randn(shape, dtype=torch.float64)
    out = layer(z)
    assert out.shape == (5, 6, *shape[2:])
    for copy in range(2):
        for channel in range(3):
            expected = (z[:, channel] + layer.bias[copy, channel]).clamp(min=0)
            assert torch.equal(out[:, 3 * copy + channel], expected)


@pytest.mark.parametrize("shape", [(3,), (5, 3), (5, 7, 3), (5, 3, 3, 3)])
def test_multi_bias_copies_channels_that_lie_last(shape):
    layer, first = MultiBias(3, 2, dim=-1).double(), MultiBias(3, 2).double()
    torch.nn.init.normal_(layer.bias)
    first.load_state_dict(layer.state_dict())
    z = torch.randn(shape, dtype=torch.float64)
    assert torch.equal(layer(z), first(z.reshape(-1, 3)).reshape(*shape[:-1], 6))


def test_multi_bias_and_a_linear_layer_are_the_papers_equation_3():
    m, n, copies = 4, 5, 3
    layer, linear = MultiBias(m, copies, "tanh").double(), torch.nn.Linear(copies * m, n, bias=False).double()
    torch.nn.init.normal_(layer.bias)
    z = torch.randn(m, dtype=torch.float64)
    w = linear.weight.reshape(n, copies, m)
    # z_i = Σ_j Σ_k w_ijk φ(b_j^(k) + z_j)
    expected = [
        sum(w[i, k, j] * torch.tanh(layer.bias[k, j] + z[j]) for j in range(m) for k in range(copies)) for i in range(n)
    ]
    torch.testing.assert_close(linear(layer(z[None]))[0], torch.stack(expected))


def test_multi_bias_begins_with_plain_copies_whose_biases_are_not_decayed():
    layer = MultiBias(3, 4, torch.sin)
    z = torch.randn(2, 3, 5)
    assert torch.equal(layer(z), torch.sin(z).repeat(1, 4, 1))
    assert [name for name, _ in layer.named_parameters()] == list(layer.no_weight_decay)
    assert layer(z.bfloat16()).dtype == torch.bfloat16


def test_multi_bias_learns_and_lets_gradients_through():
    layer = MultiBias(2, 3, "gelu").double()
    torch.nn.init.normal_(layer.bias)
    z = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda z, bias: torch.func.functional_call(layer, {"bias": bias}, (z,)), (z, layer.bias)
    )


def test_multi_bias_refuses_what_does_not_fit():
    with pytest.raises(TypeError, match=r"z: got dtype torch\.int64, allowed is a floating dtype"):
        MultiBias(3, 2)(torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"z: got shape \(2, 4\), allowed is \(N, 3, \.\.\.\)"):
        MultiBias(3, 2)(torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"z: got shape \(3,\)"):
        MultiBias(3, 2)(torch.zeros(3))
    with pytest.raises(ValueError, match=r"z: got shape \(3, 4\), allowed is \(\.\.\., 3\)"):
        MultiBias(3, 2, dim=-1)(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="dim: got 2, allowed are 1 and -1"):
        MultiBias(3, 2, dim=2)
    with pytest.raises(ValueError, match="copies: got 0, allowed is at least 1"):
        MultiBias(3, 0)
    with pytest.raises(ValueError, match="activation: got 'rectify'"):
        MultiBias(3, 2, "rectify")


def test_the_extra_layer_adds_one_number_to_a_vector():
    layer = ExtraLinear(3, dim=1).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    y = layer(x)
    for n in range(2):
        for i in range(4):
            for j in range(5):
                offset = sum(layer.weight[c] * x[n, c, i, j] for c in range(3)) + layer.bias
                torch.testing.assert_close(y[n, :, i, j], x[n, :, i, j] + offset)
    tokens = ExtraLinear(3).double()
    tokens.load_state_dict(layer.state_dict())
    torch.testing.assert_close(tokens(x.movedim(1, -1)), y.movedim(1, -1))


# Qiu et al. (2024), Table 8.
@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
def test_the_extra_layer_has_the_published_parameters_and_changes_nothing_at_the_start(activation):
    plain = models.vit_tiny(32, 3, 100, activation).eval()
    extra = replace_activations(
        plain, {activation: lambda channels, dim: nn.Sequential(ExtraLinear(channels, dim), activation())}, (3, 32, 32)
    )
    assert sum(p.numel() for p in extra.parameters()) == 5_389_360
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(extra(x), plain(x))
    extra.blocks[5].mlp.act[0].bias.data.fill_(1.0)
    assert not torch.equal(extra(x), plain(x))


def test_the_extra_layer_costs_what_raas_offset_does_and_a_sum():
    layer = ExtraLinear(7)
    counted = count(layer, (5, 7))
    assert (counted.flops, counted.unknown) == (count(RAA(7), (5, 7)).flops + 5 * 7, ())
    assert layer(torch.zeros(2, 7, dtype=torch.bfloat16)).dtype == torch.bfloat16


def random_gdn(channels, dim=-1):
    layer = GDN(channels, dim).double()
    nn.init.uniform_(layer.beta, 0.5, 1.5)
    nn.init.uniform_(layer.gamma, 0.1, 1.0)
    return layer


def of_parameters(layer):
    """The module as a function of its input and its parameters."""
    return lambda x, beta, gamma: functional_call(layer, {"beta": beta, "gamma": gamma}, (x,))


def test_gdn_is_its_formula():
    layer = random_gdn(3, dim=1)
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    expected = torch.empty_like(x)
    for i in range(3):
        pool = layer.beta[i] + sum(layer.gamma[i, j] * x[:, j] ** 2 for j in range(3))
        expected[:, i] = x[:, i] / pool.sqrt()
    torch.testing.assert_close(layer(x), expected)
    tokens = GDN(3).double()
    tokens.load_state_dict(layer.state_dict())
    torch.testing.assert_close(tokens(x.movedim(1, -1)), expected.movedim(1, -1))


def test_the_derivatives_of_gdn_are_right_once_and_twice():
    layer = random_gdn(3)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(of_parameters(layer), (x, layer.beta, layer.gamma))
    assert torch.autograd.gradgradcheck(of_parameters(layer), (x, layer.beta, layer.gamma))


def test_a_new_gdn_divides_each_element_by_its_own_size():
    layer = GDN(3)
    x = torch.randn(5, 3)
    torch.testing.assert_close(layer(x), x / (1 + 0.1 * x**2).sqrt())
    spared = parameter_groups(layer, 0.1)
    assert [(len(group["params"]), group["weight_decay"]) for group in spared] == [(2, 0.0)]


def test_below_its_bound_a_parameter_of_gdn_counts_as_the_bound_and_comes_back_when_wanted():
    layer = GDN(2).double()
    with torch.no_grad():
        layer.beta.copy_(torch.tensor([-1.0, -1.0]))
        layer.gamma.copy_(torch.tensor([[1.0, -3.0], [-3.0, 1.0]]))
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    y = layer(x)
    torch.testing.assert_close(y, x / (1e-6 + x**2).sqrt())
    # The first output is to shrink, which larger parameters do; the second to grow, which smaller ones would do.
    (y[0, 0] - y[0, 1]).backward()
    assert layer.beta.grad[0] < 0
    assert layer.gamma.grad[0, 1] < 0
    assert layer.beta.grad[1] == 0
    assert layer.gamma.grad[1, 0] == 0
    # Above the bound both directions are open.
    assert layer.gamma.grad[0, 0] < 0 < layer.gamma.grad[1, 1]


def test_parameters_of_gdn_that_start_below_their_bound_learn_what_they_should_be():
    torch.manual_seed(0)
    teacher, learner = random_gdn(3), GDN(3).double()
    with torch.no_grad():
        learner.gamma.fill_(-0.5)
    x = torch.randn(256, 3, dtype=torch.float64)
    rule = torch.optim.Adam(learner.parameters(), lr=0.05)
    for _ in range(300):
        loss = (learner(x) - teacher(x)).square().mean()
        rule.zero_grad()
        loss.backward()
        rule.step()
    assert learner.gamma.min() > 0
    assert loss < 1e-3


def test_gdn_keeps_the_dtype_and_computes_in_a_wider_one():
    layer = GDN(4)
    x = torch.full((2, 4), 3e4, dtype=torch.float16)
    y = layer(x)
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.float(), torch.full((2, 4), 10**0.5), rtol=1e-3, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x), y)


def test_gdn_is_followed_by_vmap_and_its_cost_is_known():
    layer = random_gdn(3)
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    gradient = vmap(torch.func.grad(lambda x: layer(x).square().sum()))(x)
    assert torch.equal(vmap(layer)(x), layer(x))
    leaf = x.clone().requires_grad_()
    layer(leaf).square().sum().backward()
    torch.testing.assert_close(gradient, leaf.grad)
    # 2 d² + d for the pool, d for the product
    counted = count(GDN(3), (5, 3))
    assert (counted.flops, counted.unknown, counted.parameters) == (5 * (2 * 9 + 3 + 3), (), 12)


@pytest.mark.compiler
def test_gdn_is_compiled_as_one_graph():
    layer = random_gdn(3, dim=1)
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    inputs = (x, layer.beta, layer.gamma)
    expected = torch.autograd.grad(layer(x).square().sum(), inputs)
    found = torch.autograd.grad(torch.compile(layer, backend="aot_eager", fullgraph=True)(x).square().sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@together(
    "layer",
    [
        *(MultiBias(6, 2), MultiBias(6, 2, Swish(), dim=-1), GDN(6, 1), ExtraLinear(6, 1), GLU(1), SwiGLU(), Maxout(1)),
        *(Swish(), Gumbel(), PReLU(), ChannelAttention.apa_star(6), SpatialChannelAttention(6, gate="gumbel")),
    ],
)
def test_torch_fx_follows_layers(layer):
    x = torch.randn(2, 6, 6, 6)
    assert torch.equal(fx.symbolic_trace(nn.Sequential(layer).eval())(x), layer.eval()(x))


@pytest.mark.parametrize("kind", [GDN, ExtraLinear])
def test_layers_of_vectors_refuse_what_does_not_fit(kind):
    with pytest.raises(ValueError, match=r"x: got shape \(2, 4\), allowed is one with 3 channels along dim=-1"):
        kind(3)(torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"along dim=-1; for images \(N, C, H, W\), as here, dim=1$"):
        kind(3)(torch.zeros(2, 3, 4, 4))
    with pytest.raises(ValueError, match=r"along dim=1; for tokens \(N, L, C\), as here, dim=-1$"):
        kind(3, dim=1)(torch.zeros(2, 4, 3))
    with pytest.raises(ValueError, match="along dim=2"):
        kind(3, dim=2)(torch.zeros(2, 3))
    with pytest.raises(TypeError, match=r"x: got dtype torch\.int64"):
        kind(3)(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="channels: got 0, allowed is at least 1"):
        kind(0)
