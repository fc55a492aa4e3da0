import torch
from torch import nn

from companion.study.datasets import load
from companion.study.together.network import LAYERS, ArenaCNN, PerImage, Whitening, front
from tests.cases import together


def images(n=200, channels=3, side=8):
    torch.manual_seed(0)
    # neighbours are alike, as in pictures
    return torch.randn(n, channels, side, side).cumsum(2).cumsum(3).sigmoid()


def test_whitened_maps_are_uncorrelated_and_of_one_size():
    first = front(images())
    maps = first(images()).transpose(0, 1).flatten(1)
    covariance = maps.cov()
    off = covariance - covariance.diag().diag()
    assert off.abs().max() < 0.02
    # 1, or less where a direction varies hardly more than the floor
    assert 0.9 < covariance.diag().max() < 1.02


def test_what_hardly_varies_is_not_blown_up():
    flat = torch.randn(200, 3, 8, 8) * 0.02  # of variance 4e-4, where the floor is 5e-4
    variances = Whitening(flat)(flat).transpose(0, 1).flatten(1).var(1)
    torch.testing.assert_close(variances, torch.full((12,), 4e-4 / (4e-4 + 5e-4)), rtol=0.05, atol=0)


def test_the_first_layer_learns_nothing_and_is_saved():
    first = front(images())
    assert list(first.parameters()) == []
    assert {"1.weight", "0.mean", "0.deviation"} == {*first.state_dict()}


def test_only_the_first_thousand_images_are_whitened_by():
    many = torch.cat([images(1000), torch.rand(10, 3, 8, 8)])
    mean, deviation = many.mean((0, 2, 3), keepdim=True), many.std((0, 2, 3), keepdim=True)
    expected = Whitening((many[:1000] - mean) / deviation)
    torch.testing.assert_close(front(many)[1].weight, expected.weight, rtol=1e-4, atol=1e-4)


def test_signs_of_the_filters_do_not_depend_on_the_order_of_the_images():
    here, there = (Whitening(x).weight for x in (images(), images().flip(0)))
    torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-3)


@together("side, sides", [(32, [15, 15, 7, 7, 3, 3]), (8, [3, 3, 1, 1, 1, 1])])
def test_each_block_halves_the_map(side, sides):
    seen = []
    first = front(images(side=side))
    network = ArenaCNN(first, (12, side - 1, side - 1), 10, (4, 6, 8), lambda layer, units: nn.ReLU(), (1,) * LAYERS)
    for norm in network.norms:
        norm.register_forward_hook(lambda module, args, output: seen.append(tuple(output.shape[1:])))
    assert network(images(2, side=side)).shape == (2, 10)
    assert seen == [(w, s, s) for w, s in zip([4, 4, 6, 6, 8, 8], sides, strict=True)]


def test_a_unit_of_several_arguments_has_as_many_maps():
    network = ArenaCNN(
        nn.Identity(),
        (3, 8, 8),
        10,
        (4, 6, 8),
        lambda layer, units: nn.GLU(1) if layer == 5 else nn.ReLU(),
        (1,) * 5 + (2,),
    )
    assert [c.out_channels for c in network.convolutions] == [4, 4, 6, 6, 8, 16]
    assert network.head.in_features == 8


def test_digits_can_be_whitened():
    first = front(load("digits", standardise=False).train.inputs)
    assert bool(first(load("digits", standardise=False).test.inputs).isfinite().all())


def test_an_image_standardised_by_itself_has_no_level_and_no_contrast_of_its_own():
    many = images()
    first, plain = front(many, per_image=True), front(many)
    assert isinstance(first[0], PerImage)
    one = PerImage()(many)
    torch.testing.assert_close(first[0](2 * many - 0.3), one, rtol=1e-4, atol=1e-4)
    assert (plain[0](2 * many - 0.3) - plain[0](many)).abs().max() > 0.1
    torch.testing.assert_close(one.mean((1, 2, 3)), torch.zeros(len(many)), rtol=0, atol=1e-5)
    torch.testing.assert_close(one.std((1, 2, 3), correction=0), torch.ones(len(many)))
    assert PerImage()(torch.full((1, 3, 4, 4), 0.7)).abs().max() < 1e-5
