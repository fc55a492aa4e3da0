import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from companion.study.experiments import Job, get
from companion.study.results import load
from companion.study.together import gpt, sharpness, vit
from companion.study.together.sharpness import Sharp, bent, spreads
from tests.study.experiments.committed import committed, runs

KEYS = {"together-sharpness": {"neuron", "seed", "accuracy", "spread", "spread_start", "accuracy_std_0.3"}}
TestRuns = runs(KEYS, committed("together-sharpness"))

SHAPE, CLASSES = (3, 32, 32), 10


def network(name):
    settings = get("together-sharpness").settings("images")
    torch.manual_seed(1)
    return sharpness._vit(name, nn.Identity(), SHAPE, CLASSES, settings, 4 * settings["width"])


def text_job(experiment, neuron):
    settings = get("together-gpt").settings("smoke")
    return Job(experiment, "evaluation", {"neuron": neuron}, settings, 0, 1e-3)


def test_the_family_has_silu_nearly_gelu_and_in_the_limit_relu():
    z = torch.linspace(-6, 6, 1201, dtype=torch.float64)
    assert torch.equal(Sharp(1.0)(z), F.silu(z))
    assert (Sharp(1.702)(z) - F.gelu(z)).abs().max() < 0.0204
    assert (Sharp(1e4)(z) - F.relu(z)).abs().max() < 3e-5
    # by 0.278/β everywhere: the minimum of SiLU
    assert float((F.relu(z) - Sharp(4.0)(z)).max()) == pytest.approx(0.27846 / 4, rel=1e-3)


@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_how_far_a_curve_is_from_a_line_depends_on_its_spread_times_beta(beta):
    # drawn, and fitted by least squares
    z = 0.16 * torch.randn(1_000_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    given, out = z - z.mean(), Sharp(beta)(z) - Sharp(beta)(z).mean()
    drawn = 1 - (given @ out) ** 2 / (given @ given) / (out @ out)
    assert bent(Sharp(beta), 0.16) == pytest.approx(float(drawn), rel=0.01)
    assert bent(Sharp(beta), 0.16) == pytest.approx(bent(F.silu, 0.16 * beta), rel=1e-9)
    assert bent(Sharp(beta), 0.01) == pytest.approx((0.01 * beta) ** 2 / 2, rel=0.01)


def test_of_relu_it_is_the_same_at_every_spread():
    assert [bent(F.relu, spread) for spread in (0.01, 3.0)] == pytest.approx([(math.pi - 2) / (2 * math.pi - 2)] * 2)


def test_all_that_is_another_is_the_size_of_the_weights_before_the_curve():
    plain, wide = network("gelu").state_dict(), network("gelu_wide").state_dict()
    for key, value in plain.items():
        torch.testing.assert_close(wide[key], value * (4 if key.endswith("mlp.fc1.weight") else 1))
    images, curve = torch.rand(4, *SHAPE), network("sharp_4").eval()
    torch.testing.assert_close(network("silu_folded").eval()(images), curve(images), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(network("silu").eval()(images), curve(images), rtol=1e-4, atol=1e-6)
    for name in ("silu_both", "silu_before", "silu_behind", "relu_folded", "relu_both"):
        plain = network(name.partition("_")[0]).eval()
        torch.testing.assert_close(network(name).eval()(images), plain(images), rtol=1e-4, atol=1e-6)
    plain = vit.build("gelu", nn.Identity(), SHAPE, CLASSES, get("together-vit").settings("laptop"), 256)
    assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in network("sharp_4").parameters())


def around(before, behind, curve):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 16), curve, nn.Linear(16, 1)).double()
    with torch.no_grad():
        model[0].weight.mul_(before)
        model[0].bias.zero_()
        model[2].weight.mul_(behind)
    return model


def trained(model, before=1.0, behind=1.0):
    # the bias before the curve is a sum before it, too
    rates = [(model[0].parameters(), before), ([model[2].weight], behind), ([model[2].bias], 1.0)]
    rule = torch.optim.AdamW(
        [{"params": [*of], "lr": 0.01 * rate, "weight_decay": 0.1 / rate} for of, rate in rates], eps=1e-30
    )
    given = torch.randn(64, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    for _ in range(60):
        rule.zero_grad()
        (model(given)[:, 0] - given.sin().sum(1)).square().mean().backward()
        rule.step()
    return model(given)


def test_a_steeper_curve_is_silu_with_another_beginning_and_other_steps():
    sharp, plain = trained(around(1, 1, Sharp(4.0))), trained(around(1, 1, nn.SiLU()))
    torch.testing.assert_close(trained(around(4, 0.25, nn.SiLU()), 4, 0.25), sharp, rtol=1e-9, atol=1e-9)
    assert (trained(around(4, 0.25, nn.SiLU())) - sharp).abs().max() > 0.1
    # what the three of "steps" do: their curves and beginnings are SiLU with other steps
    for before, behind, curve, steps in (
        (0.25, 4, Sharp(4.0), (4, 0.25)),
        (0.25, 1, Sharp(4.0, 4.0), (4, 1)),
        (1, 4, Sharp(1.0, 0.25), (1, 0.25)),
    ):
        found = trained(around(before, behind, curve))
        torch.testing.assert_close(found, trained(around(1, 1, nn.SiLU()), *steps), rtol=1e-9, atol=1e-9)
        assert (found - plain).abs().max() > 0.05
    # ReLU's are the same function, and differ in the steps
    plain = trained(around(1, 1, nn.ReLU()))
    for before, behind in ((4, 0.25), (0.25, 4)):
        found = trained(around(before, behind, nn.ReLU()))
        torch.testing.assert_close(
            found, trained(around(1, 1, nn.ReLU()), 1 / before, 1 / behind), rtol=1e-9, atol=1e-9
        )
        assert (found - plain).abs().max() > 0.05


def test_a_curve_is_given_at_first_what_the_page_says():
    images = torch.rand(8, *SHAPE)
    # a normalised stream times √64 weights of deviation 0.02
    assert spreads(network("gelu"), images) == pytest.approx([0.16] * 4, rel=0.1)
    assert spreads(network("gelu_wide"), images) == pytest.approx([0.64] * 4, rel=0.1)
    assert spreads(network("silu"), images)[0] == spreads(network("sharp_16"), images)[0]


@pytest.mark.parametrize(
    ("preset", "arena"),
    [*((name, "together-vit") for name in ("images", "folded", "steps", "one-rate", "relu")), ("text", "together-gpt")],
)
def test_all_else_is_the_arenas(preset, arena):
    settings, laptop = get("together-sharpness").presets[preset], get(arena).presets["laptop"]
    other = {key for key in settings.keys() | laptop.keys() if settings.get(key) != laptop.get(key)}
    untuned = {"learning_rates", "tuning_seeds"} if preset in ("one-rate", "relu") else set()
    assert other == {"seeds", "competitors"} | untuned
    assert settings["seeds"] <= laptop["seeds"]


def test_where_one_rate_is_given_it_is_that_which_all_others_chose():
    results = [load("together-sharpness", name) for name in ("images", "folded")]
    chosen = {row["learning_rate"] for result in results for row in result["chosen"]}
    for preset in ("one-rate", "relu"):
        assert [*chosen] == get("together-sharpness").presets[preset]["learning_rates"]
    arena = {row["learning_rate"] for row in load("together-vit")["rows"] if row["neuron"] == "relu"}
    assert arena == chosen


def test_on_text_it_is_the_arenas_network_around_another_curve():
    (ours,) = sharpness._measure(text_job("together-sharpness", "gelu"))
    (arena,) = gpt.measure(text_job("together-gpt", "gelu"))
    assert ours == arena
    (sharp,) = sharpness._measure(text_job("together-sharpness", "sharp_4"))
    assert sharp["bits"] != ours["bits"]
    assert sharp["parameters"] == ours["parameters"]
    assert sharpness._validate(text_job("together-sharpness", "sharp_4")) == -sharp["bits_validation"]
