"""What is counted on a network equals the closed form, and the closed form is the paper's."""

from __future__ import annotations

import copy
import threading
from itertools import pairwise, product
from math import floor, prod
from typing import Any

import pytest
import torch
import torchvision
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from companion import (
    AGLU,
    DACConv2d,
    DACLinear,
    LASiLU,
    MultiBias,
    count,
    counting,
    replace_activations,
    rooms,
    to_dac,
    to_multibias,
)
from companion.baselines import PReLU, Swish
from companion.counting import conv2d_flops, linear_flops
from companion.dac.costs import dac_conv2d_flops, dac_linear_flops
from companion.functional import aglu, dac_conv2d, dac_linear, la_silu
from companion.operators import overridable
from companion.study import models
from tests.cases import together

# --- one layer ---------------------------------------------------------------------------------------------------

# Sizes that no factor is shared by, so that no two can be mistaken for each other; every option at least once.
GEOMETRIES = [
    {"kernel_size": 1},
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "padding": 1, "stride": 2},
    {"kernel_size": (3, 5), "padding": (2, 1), "stride": (1, 3), "dilation": (2, 1)},
    {"kernel_size": 3, "groups": 2},
    {"kernel_size": 2, "groups": 4, "stride": 2},
]


def described(layer: nn.Module) -> dict[str, tuple[int, int]]:
    pairs = ("stride", "padding", "dilation")
    return {"kernel": layer.kernel_size, **{name: getattr(layer, name) for name in pairs}, "groups": layer.groups}


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_costs_its_closed_form(geometry: dict, bias: bool) -> None:
    layer = nn.Conv2d(4, 8, **geometry, bias=bias)
    out = layer(torch.zeros(1, 4, 11, 13))
    # One multiplication and one addition for every weight that an output sees.
    expected = 2 * out.numel() * layer.weight[0].numel() + out.numel() * bias
    assert count(layer, (4, 11, 13)).flops == expected
    assert conv2d_flops(4, 8, image=(11, 13), bias=bias, **described(layer)) == expected


class Literal(nn.Module):
    """The layer's formula as tensor maths: the cached additions, then a convolution in which every pair is a group."""

    def __init__(self, layer: DACConv2d) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, z):
        layer = self.layer
        if layer.pad_order == "before":
            z = F.pad(z, (layer.padding[1],) * 2 + (layer.padding[0],) * 2)
        padding = (0, 0) if layer.pad_order == "before" else layer.padding
        n, own = layer.weight.shape[:2]
        group = torch.arange(n) // (n // layer.groups)
        seen = z[:, (group[:, None] * own + torch.arange(own)).flatten()]
        y = F.relu(seen + layer.bias.flatten()[:, None, None])
        return F.conv2d(y, layer.weight, None, layer.stride, padding, layer.dilation, n)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("pad_order", ["after", "before"])
def test_a_dac_convolution_costs_its_closed_form_and_what_its_formula_does(geometry: dict, pad_order: str) -> None:
    layer = DACConv2d(4, 8, **geometry, pad_order=pad_order)
    nn.init.normal_(layer.bias)
    x = torch.randn(2, 4, 11, 13)
    torch.testing.assert_close(Literal(layer)(x), layer(x))
    flops = count(layer, (4, 11, 13)).flops
    assert flops == count(Literal(layer), (4, 11, 13)).flops
    assert flops == dac_conv2d_flops(4, 8, image=(11, 13), pad_order=pad_order, **described(layer))


def test_the_padded_map_costs_more_additions() -> None:
    after, before = (
        dac_conv2d_flops(3, 5, (3, 3), (8, 8), padding=(1, 1), pad_order=order) for order in ("after", "before")
    )
    assert before - after == 3 * 5 * (10 * 10 - 8 * 8)


@pytest.mark.parametrize("pad_order", ["after", "before"])
def test_biases_per_weight_cannot_be_cached(pad_order: str) -> None:
    layer = DACConv2d(4, 8, 3, padding=1, stride=2, per_weight=True, pad_order=pad_order)
    # Multiplication, addition and bias for every weight of every output.
    expected = 3 * layer.weight.numel() * 6 * 7
    assert count(layer, (4, 11, 13)).flops == expected
    form = dac_conv2d_flops(4, 8, image=(11, 13), pad_order=pad_order, per_weight=True, **described(layer))
    assert form == expected


@pytest.mark.parametrize("activation", ["relu", "gelu", torch.sin])
def test_a_dense_layer_costs_its_closed_form_whatever_its_activation(activation) -> None:
    assert count(nn.Linear(7, 5), (7,)).flops == linear_flops(7, 5) == 75
    assert count(nn.Linear(7, 5, bias=False), (7,)).flops == linear_flops(7, 5, bias=False) == 70
    assert count(DACLinear(7, 5, activation), (7,)).flops == dac_linear_flops(7, 5) == 105
    # Every token of a sequence costs as much as one.
    assert count(nn.Linear(7, 5), (3, 7)).flops == 3 * 75
    assert count(DACLinear(7, 5, activation), (3, 7)).flops == 3 * 105


# The relative increases of the paper's section 4, with the m additions that the layer before no longer makes.
@pytest.mark.parametrize(("n", "m", "size"), [(2, 3, 1), (16, 16, 3), (64, 32, 3), (10, 7, 5)])
def test_the_relative_increase_is_the_papers(n: int, m: int, size: int) -> None:
    image, padding = (9, 9), ((size - 1) // 2,) * 2
    base = conv2d_flops(m, n, (size, size), image, padding=padding, bias=False)
    dac = dac_conv2d_flops(m, n, (size, size), image, padding=padding) - m * prod(image)
    assert dac / base == pytest.approx(1 + 0.5 / size**2 * (1 - 1 / n), rel=1e-12)
    dense = (dac_linear_flops(m, n) - m) / linear_flops(m, n, bias=False)
    assert dense == pytest.approx(1.5 - 1 / (2 * n), rel=1e-12)


# --- the networks of the paper -----------------------------------------------------------------------------------


def closed_form(depths: list[int], width: int, image: int, *, dac: bool, first: bool, skips: bool) -> tuple[int, int]:
    """(parameters, FLOPs) of three stages of 3×3 convolutions, with 10 classes, from section 4 alone."""
    channels = [3] + [width * 2**stage for stage, depth in enumerate(depths) for _ in range(depth)]
    sizes = [image] + [image // 2**stage for stage, depth in enumerate(depths) for _ in range(depth)]
    weights = flops = 0
    for layer, ((m, n), (before, after)) in enumerate(zip(pairwise(channels), pairwise(sizes), strict=True)):
        weights += 9 * m * n
        flops += 2 * 9 * m * n * after**2
        # γ, β; scale and shift
        weights += 2 * n
        flops += 2 * n * after**2
        if dac and (layer > 0 or first):
            weights += n * m
            flops += n * m * before**2
            # the β of the activation that this layer took over
            weights -= m if layer > 0 else 0
        if skips and layer > 0 and layer % 2 == 0:
            flops += n * after**2
    return weights + 11 * channels[-1] - channels[-1] + 10, flops + 20 * channels[-1] + 10


NETWORKS = {
    "vgg20_16": ([7, 6, 6], 16, False),
    "vgg14_32": ([5, 4, 4], 32, False),
    "resnet20": ([7, 6, 6], 16, True),
    "resnet32": ([11, 10, 10], 16, True),
    "resnet44": ([15, 14, 14], 16, True),
    "resnet56": ([19, 18, 18], 16, True),
    "resnet20_v2": ([7, 6, 6], 16, True),
    "resnet32_v2": ([11, 10, 10], 16, True),
    "resnet44_v2": ([15, 14, 14], 16, True),
    "resnet56_v2": ([19, 18, 18], 16, True),
    "resnet20_v2_wide4": ([7, 6, 6], 64, True),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("image", [32, 80])
def test_every_network_of_the_paper_costs_its_closed_form(name: str, image: int) -> None:
    depths, width, skips = NETWORKS[name]
    model = models.build(name, (3, image, image), 10, nn.ReLU)
    for network, dac, first in (
        (model, False, False),
        (to_dac(model), True, False),
        (to_dac(model, first=True), True, True),
    ):
        counted = count(network, (3, image, image))
        parameters, flops = closed_form(depths, width, image, dac=dac, first=first, skips=skips)
        if dac and skips and not name.endswith(("v2", "wide4")):
            # v1: the shifts on the skip connection that the last activation needs are kept, once per channel,
            parameters += 4 * width
            # and added there.
            flops += 4 * width * (image // 4) ** 2
        assert counted.parameters == parameters == sum(p.numel() for p in network.parameters())
        assert counted.flops == flops


# Metta et al., Table 2: GFLOPs at 80 × 80, base and DAC. With batch normalisation at two per element, skip
# connections at one, and a DAC as the first layer, all four are the printed numbers, cut (not rounded) after three
# digits.
@pytest.mark.parametrize(("name", "base", "dac"), [("resnet20", 0.509, 0.542), ("resnet32", 0.865, 0.918)])
@pytest.mark.parametrize("version", ["", "_v2"])
def test_table_2_is_found_again(name: str, version: str, base: float, dac: float) -> None:
    model = models.build(name + version, (3, 80, 80), 10, nn.ReLU)
    assert floor(count(model, (3, 80, 80)).flops / 1e6) / 1000 == base
    assert floor(count(to_dac(model, first=True), (3, 80, 80)).flops / 1e6) / 1000 == dac


def test_no_other_convention_gives_table_2() -> None:
    found = []
    operations = range(5)
    for norm, dac_norm, skip, grid, first in product(operations, operations, range(2), ("input", "output"), range(2)):
        printed: dict[str, list[float]] = {"rounded": [], "cut": []}
        for blocks in (3, 5):
            channels = [3] + [16] * (2 * blocks + 1) + [32] * 2 * blocks + [64] * 2 * blocks
            sizes = [80 * 16 // max(16, width) for width in channels]
            layers = list(zip(pairwise(channels), pairwise(sizes), strict=True))
            outputs = sum(n * after**2 for (_, n), (_, after) in layers)
            sums = sum(16 * 2**stage * (80 // 2**stage) ** 2 * blocks for stage in range(3))
            base = sum(18 * m * n * after**2 for (m, n), (_, after) in layers) + skip * sums + 20 * 64 + 10
            biases = sum(
                m * n * (before if grid == "input" else after) ** 2 for (m, n), (before, after) in layers[1 - first :]
            )
            for flops in (base + norm * outputs, base + dac_norm * outputs + biases):
                printed["rounded"].append(round(flops / 1e6) / 1000)
                printed["cut"].append(floor(flops / 1e6) / 1000)
        found += [
            (norm, dac_norm, skip, grid, first, how) for how in printed if printed[how] == [0.509, 0.542, 0.865, 0.918]
        ]
    assert found == [(2, 2, 1, "input", 1, "cut")]


def test_the_wide_network_has_as_many_parameters_as_the_paper_says() -> None:
    counted = count(models.build("resnet20_v2_wide4", (3, 32, 32), 10, nn.ReLU), (3, 32, 32))
    assert round(counted.parameters / 1e6, 1) == 4.3


# --- any network -------------------------------------------------------------------------------------------------


def test_a_network_of_somebody_else_adds_up() -> None:
    model = torchvision.models.resnet18()
    counted = count(model, (3, 224, 224))
    assert counted.parameters == sum(p.numel() for p in model.parameters())
    assert counted.parameters == sum(row.parameters for row in counted.layers)
    assert counted.flops == sum(row.flops for row in counted.layers)
    # torchvision's documentation: 1.81 billions of multiplications; two operations each, plus what it leaves out.
    assert counted.flops == pytest.approx(2 * 1.81e9, rel=0.01)
    rows = {row.name: row for row in counted.layers}
    assert rows["conv1"].flops == conv2d_flops(3, 64, (7, 7), (224, 224), (2, 2), (3, 3), bias=False)
    assert rows["layer1.0"].flops == 64 * 56 * 56
    assert rows["bn1"].flops == 2 * 64 * 112 * 112
    assert rows["fc"].flops == linear_flops(512, 1000)


def test_attention_is_counted() -> None:
    tokens, width, hidden = 10, 32, 64
    layer = nn.TransformerEncoderLayer(width, 4, hidden, batch_first=True)
    projections = 4 * tokens * linear_flops(width, width)
    products = 2 * 2 * tokens * tokens * width
    perceptron = tokens * (linear_flops(width, hidden) + linear_flops(hidden, width))
    skips = 2 * tokens * width
    enabled = torch.backends.mha.get_fastpath_enabled()
    assert count(layer, (tokens, width)).flops == projections + products + perceptron + skips
    assert torch.backends.mha.get_fastpath_enabled() == enabled


class Calls(nn.Module):
    """Everything as a function, with parameters of one module."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.bias = nn.Parameter(torch.randn(4, 3, 3, 3)), nn.Parameter(torch.randn(4, 4))
        self.matrix, self.pairs = nn.Parameter(torch.randn(4, 4, 1, 1)), nn.Parameter(torch.randn(5, 4))

    def forward(self, x):
        x = F.conv2d(x, self.kernel)
        x = dac_conv2d(x, self.matrix, self.bias)
        return dac_linear(F.relu(x.mean((2, 3))), self.pairs, self.pairs)


def test_functions_count_like_modules() -> None:
    expected = (
        conv2d_flops(3, 4, (3, 3), (8, 8), bias=False) + dac_conv2d_flops(4, 4, (1, 1), (6, 6)) + dac_linear_flops(4, 5)
    )
    counted = count(Calls(), (3, 8, 8))
    assert counted.flops == expected
    assert [(row.name, row.kind) for row in counted.layers] == [("", "Calls")]


def test_activations_are_free_however_they_are_computed() -> None:
    model = torchvision.models.resnet18()
    expected = count(model, (3, 32, 32)).flops
    for activation in (AGLU, nn.Hardswish, nn.SiLU, nn.PReLU):
        assert count(replace_activations(model, {nn.ReLU: activation}), (3, 32, 32)).flops == expected


def test_multi_bias_costs_an_addition_for_each_copy() -> None:
    assert count(MultiBias(4, 3), (4, 5, 6)).flops == 3 * 4 * 5 * 6
    model = models.resnet20(3, 10)
    base, wide = (count(network, (3, 32, 32)) for network in (model, to_multibias(model, 4)))
    # Section 5: parameters and computations are K-fold, but for the first and the last layer and the normalisations.
    assert 3.9 < wide.parameters / base.parameters < 4
    assert 3.9 < wide.flops / base.flops < 4


def test_a_module_that_is_called_twice_costs_twice_and_holds_its_parameters_once() -> None:
    layer = nn.Linear(3, 3)
    counted = count(nn.Sequential(layer, nn.ReLU(), layer), (3,))
    assert (counted.parameters, counted.flops) == (12, 2 * linear_flops(3, 3))
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert count(tied, (3,)).parameters == 15


# --- any inputs --------------------------------------------------------------------------------------------------


class Several(nn.Module):
    """Tokens, a list of images of different sizes, and a mask by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.conv = nn.Embedding(10, 4), nn.Conv2d(3, 4, 1)

    def forward(self, tokens, images, *, mask):
        assert tokens.dtype == torch.long
        means = torch.stack([self.conv(image[None]).mean((0, 2, 3)) for image in images])
        return self.embedding(tokens) * mask + means


def test_the_inputs_may_be_any() -> None:
    images = [torch.zeros(3, 5, 6), torch.zeros(3, 7, 2)]
    tokens, mask = torch.zeros(2, dtype=torch.long), torch.ones(2, 1, dtype=torch.bool)
    counted = count(Several(), {"tokens": tokens, "images": images, "mask": mask})
    assert counted.flops == 7 * 4 * (5 * 6 + 7 * 2) + 2 * 4
    assert counted.unknown == ()
    one, two = (count(nn.Linear(3, 2), torch.zeros(n, 3)).flops for n in (1, 2))
    assert (one, two) == (14, 28)
    assert count(nn.Bilinear(2, 3, 4), (torch.zeros(1, 2), torch.zeros(1, 3))).parameters == 28
    with pytest.raises(TypeError, match="example: got None, allowed are a shape, a tensor"):
        count(nn.Linear(3, 2), None)
    with pytest.raises(ValueError, match=r"cannot take \(1, 1, 4\) .*; the example \(1, 4\) is the shape of one input"):
        count(nn.Linear(3, 2), (1, 4))


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_recurrent_networks_cost_what_their_cells_do() -> None:
    x = torch.zeros(3, 7, 4)
    for options in ({}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}):
        fused = count(nn.LSTM(4, 5, **options), x)
        with torch.backends.mkldnn.flags(enabled=False):
            apart = count(nn.LSTM(4, 5, **options), x)
        assert (fused.flops, fused.unknown) == (apart.flops, ())
    assert count(nn.GRU(4, 5), x).unknown == ()


def test_operators_add_up_to_the_total() -> None:
    model = to_dac(models.resnet20(3, 10))
    counted = count(nn.Sequential(model, Dense()), (3, 16, 16))
    costs = counted.by_operator()
    assert sum(costs.values()) == counted.flops
    assert list(costs.values()) == sorted(costs.values(), reverse=True)
    assert next(iter(costs)) == "dac_conv2d"
    assert costs["dac_linear"] == dac_linear_flops(10, 10)


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pairs = nn.Parameter(torch.ones(10, 10))

    def forward(self, x):
        return dac_linear(x, self.pairs, self.pairs)


@together(
    "compute, flops",
    [
        (lambda x: 1 - x, 0),
        (lambda x: x * (x > 0), 0),
        (lambda x: x * x.new_ones(()), 0),
        (lambda x: x * x.new_ones(1), 0),
        (lambda x: x.new_ones(1) - x, 0),
        (lambda x: x * x.new_ones(5), 5),
        (lambda x: torch.rsub(x, 2 * x), 5),
    ],
)
def test_one_number_and_a_mask_are_free_whatever_their_form(compute, flops: int) -> None:
    class Computed(nn.Module):
        def forward(self, x):
            return compute(x)

    counted = count(Computed(), (5,))
    assert (counted.flops, counted.unknown) == (flops, ())


# --- what is declared, and what nobody knows ---------------------------------------------------------------------


class Unknown(nn.Module):
    """Sums along a row, of which the convention says nothing."""

    def forward(self, x):
        return torch.cumsum(F.gelu(x) + x, -1) * x.sum()


def test_a_learned_curve_is_free_as_others_are() -> None:
    assert {count(nn.Sequential(each), (16,)).flops for each in (Swish(), PReLU(), AGLU(), nn.SiLU())} == {0}


def test_what_nobody_knows_is_said_and_not_counted_as_free() -> None:
    counted = count(nn.Sequential(nn.Linear(3, 3), Unknown(), Unknown()), (3,))
    assert counted.unknown == (("aten.cumsum", 2), ("aten.sum", 2))
    assert counted.flops == linear_flops(3, 3) + 2 * 3  # the additions; a number of no dimension is not a tensor
    assert str(counted).splitlines()[-2:] == [
        "not counted: aten.cumsum, called 2 times",
        "not counted: aten.sum, called 2 times",
    ]


@together("name", ["mobilenet_v3_small", "swin_t", "vit_b_16"])
def test_of_common_networks_everything_is_known(name: str) -> None:
    with torch.device("meta"):
        model = torchvision.models.get_model(name)
    assert count(model, (3, 224, 224)).unknown == ()


class LateToken(nn.Module):
    """As CaiT does, it hands a module a view of a parameter; and it does so without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.mix = nn.Parameter(torch.zeros(1, 1, 4)), nn.Bilinear(4, 4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.mix(self.token.expand(*x.shape[:2], -1), x)
        return result


def test_a_module_that_is_handed_a_parameter_is_counted() -> None:
    for model in (LateToken(), nn.Sequential(LateToken(), Cumulated())):
        assert count(model, (3, 4)).parameters == 4 + 4 * 4 * 4 + 4


@overridable
def cumulated(x: torch.Tensor, times: int = 1) -> torch.Tensor:
    """A function of somebody else."""
    return torch.cumsum(x, -1) * times


class Cumulated(nn.Module):
    def forward(self, x):
        return cumulated(x, times=2) + x


class Inherited(Cumulated):
    """Of whose class nothing is declared."""


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is forgotten after it; what mechanisms declare, as `count` first imports it, is not."""
    rooms.modules("costs")
    monkeypatch.setattr(counting, "_COSTS", dict(counting._COSTS))


@pytest.mark.usefixtures("declared")
def test_a_function_declares_its_cost() -> None:
    @counting.declare(cumulated)
    def _(x: torch.Tensor, times: int = 1) -> int:
        return times * x.numel()

    counted = count(nn.Sequential(Cumulated(), nn.Linear(5, 1)), (5,))
    assert (counted.flops, counted.unknown) == (2 * 5 + 5 + linear_flops(5, 1), ())


@pytest.mark.usefixtures("declared")
def test_a_module_declares_its_cost_with_all_that_is_in_it() -> None:
    counting.declare(Cumulated)(lambda module, x: 100 * x.shape[-1])
    counted = count(nn.Sequential(Inherited(), nn.Linear(5, 1), Cumulated()), (5,))
    assert (counted.flops, counted.unknown) == (500 + linear_flops(5, 1) + 100, ())


@pytest.mark.usefixtures("declared")
def test_without_numbers_the_declared_stand_in_runs_and_with_numbers_the_function() -> None:
    runs = []

    def fake(x: torch.Tensor, times: int = 1) -> torch.Tensor:
        runs.append(times)
        return torch.empty_like(x)

    counting.declare(cumulated, fake=fake)(lambda x, times=1: 7)
    assert count(Cumulated(), (5,)).flops == 7 + 5
    assert runs == [2]
    assert count(nn.Sequential(ByValue(), Cumulated()), (3,)).flops == linear_flops(3, 3) + 7 + 3
    assert runs == [2]


def test_free_functions_are_free_by_whatever_name() -> None:
    class Free(nn.Module):
        def forward(self, x):
            return la_silu(aglu(x, 1.0, x.new_ones(6)) + 0.0)

    counted = count(Free(), (6, 5, 5))
    assert (counted.flops, counted.unknown) == (0, ())


def test_torch_counts_the_compilers_operator_by_the_same_closed_form() -> None:
    layer = DACConv2d(4, 8, 3, padding=1, stride=2, pad_order="before")
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    x = torch.randn(3, 4, 11, 13)
    with torch.no_grad():
        torch.compile(layer, backend=aot_autograd(fw_compiler=keep))(x)
    with FlopCounterMode(display=False) as counter:
        graphs[0](*layer.parameters(), x)
    one = dac_conv2d_flops(4, 8, image=(11, 13), pad_order="before", **described(layer))
    assert counter.get_flop_counts()["Global"] == {torch.ops.companion.dac_conv2d: 3 * one}


def test_who_computes_in_another_thread_computes_what_it_did() -> None:
    layer, x = DACLinear(16, 16), torch.randn(4, 16)
    nn.init.normal_(layer.bias)
    expected, wrong, done = layer(x), [], threading.Event()

    def compute() -> None:
        while not done.is_set():
            if not torch.equal(layer(x), expected):
                wrong.append(True)

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        for _ in range(20):
            count(nn.Sequential(DACLinear(16, 16), AGLU()), (16,))
    finally:
        done.set()
        thread.join()
    assert not wrong


class ByValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x) if x.sum() == 0 else x


def test_a_network_that_looks_at_values_is_run_on_zeros() -> None:
    assert count(ByValue(), (3,)).flops == linear_flops(3, 3)


@pytest.mark.parametrize("make", [ByValue, lambda: models.resnet20(3, 10)])
def test_the_network_is_left_alone(make) -> None:
    model = make().train()
    shape = (3,) if isinstance(model, ByValue) else (3, 32, 32)
    before = copy.deepcopy(model.state_dict())
    count(model, shape)
    assert model.training
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    # DAC layers compute again.
    layer = DACLinear(3, 2)
    assert torch.equal(layer(torch.full((1, 3), -1.0)), torch.zeros(1, 2))


def test_activations_with_learned_parameters_need_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    monkeypatch.setattr(counting, "_run", lambda *given, run=counting._run: runs.append(given) or run(*given))
    for layer in (AGLU(), AGLU(6), LASiLU(), DACLinear(6, 6)):
        count(nn.Sequential(nn.Linear(6, 6), layer), (6,))
    assert len(runs) == 4
    with pytest.raises(ValueError, match=r"kappa: got shape \(7,\)"):
        count(AGLU(7), (6,))


def test_a_network_whose_train_returns_nothing_is_counted() -> None:
    class Frozen(nn.Linear):
        def train(self, mode: bool = True) -> None:  # type: ignore[override]
            super().train(mode)

    assert count(Frozen(4, 3), (4,)).flops == linear_flops(4, 3)


@pytest.mark.parametrize("converted", [nn.Sequential, to_dac, lambda model: to_multibias(model, 2)])
def test_a_compiled_network_counts_as_the_network_does_wherever_it_stands(converted) -> None:
    model = converted(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    plain, compiled = count(model, (3,)), torch.compile(model, backend="eager")
    assert plain.flops > 0
    assert count(compiled, (3,)) == plain
    assert count(nn.Sequential(compiled), (3,)).by_operator() == plain.by_operator()
    assert count(nn.Sequential(compiled), (3,)).flops == plain.flops


def test_what_a_hook_computes_is_counted_and_a_hook_for_training_sees_nothing() -> None:
    model, adapter, seen = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(3, 4), list[object]()
    model[0].register_forward_hook(lambda module, args, out: F.linear(args[0], adapter.weight))
    model[0].register_forward_hook(lambda module, args, out: seen.append(out) if module.training else None)
    assert count(model, (3,)).flops == linear_flops(3, 4) + linear_flops(3, 4, bias=False)
    assert not seen


def test_an_error_in_the_network_comes_through_and_nothing_is_left_behind() -> None:
    with pytest.raises(ValueError, match=r"model: module '1', a Linear, cannot take \(1, 4\) \(RuntimeError: .*"):
        count(nn.Sequential(nn.ReLU(), nn.Linear(3, 3)), (4,))
    assert torch.equal(DACLinear(3, 2)(torch.full((1, 3), -1.0)), torch.zeros(1, 2))


def test_other_dtypes_are_counted_alike() -> None:
    for dtype, layer in product((torch.float64, torch.bfloat16), (nn.Conv2d(3, 4, 3), DACConv2d(3, 4, 3))):
        assert count(copy.deepcopy(layer).to(dtype), (3, 8, 8)) == count(layer, (3, 8, 8))


def test_the_table_has_a_line_for_every_layer_and_aligned_columns() -> None:
    lines = str(count(to_dac(models.vgg20_16(3, 10)), (3, 32, 32))).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].split() == ["layer", "kind", "parameters", "FLOPs"]
    assert ["convolutions.1", "DACConv2d", "2,560", "4,980,736"] in [line.split() for line in lines]
    assert lines[-1].split()[0] == "total"
