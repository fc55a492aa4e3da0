import pytest
import torch
from scipy import stats

from companion.baselines import Gumbel, PReLU, gumbel


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
