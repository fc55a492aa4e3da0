import pytest
import torch
from scipy import stats

from companion.baselines import Gumbel, MultiBias, PReLU, gumbel


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
    with pytest.raises(TypeError, match=r"z has dtype torch\.int64"):
        gumbel(torch.tensor([1]))


def test_the_module_is_the_function():
    z = torch.randn(5)
    assert torch.equal(Gumbel()(z), gumbel(z))


def test_prelu_exempts_its_slope_from_decay():
    layer = PReLU()
    assert [name for name, _ in layer.named_parameters()] == list(layer.no_weight_decay)
    assert layer(torch.tensor([-4.0])).item() == -1.0


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
    with pytest.raises(ValueError, match=r"z has shape \(2, 4\); allowed is \(N, 3, \.\.\.\)"):
        MultiBias(3, 2)(torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"z has shape \(3,\)"):
        MultiBias(3, 2)(torch.zeros(3))
    with pytest.raises(ValueError, match="channels and copies are 3 and 0"):
        MultiBias(3, 0)
    with pytest.raises(ValueError, match="activation: got 'rectify'"):
        MultiBias(3, 2, "rectify")
