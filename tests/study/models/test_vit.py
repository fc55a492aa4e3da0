"""The vision transformer: it computes what timm's does, has the published size, and takes the book's activations."""

import pytest
import timm
import torch
from torch import nn

from companion import RAA, parameter_groups, replace_activations
from companion.baselines import PReLU
from companion.study import models
from companion.study.models import DropPath, VisionTransformer

SIZES = {"patch": 4, "width": 24, "depth": 3, "heads": 2}


def small(**named):
    return VisionTransformer(16, 3, 10, **{**SIZES, **named})


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def noisy(model):
    """Nothing is 0 or 1."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def test_it_computes_what_timms_network_with_the_same_state_does():
    ours = noisy(small()).double().eval()
    theirs = timm.models.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=24, depth=3, num_heads=2, num_classes=10
    )
    theirs.double().eval().load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-10, atol=1e-10)


# Qiu et al. (2024), Table 8: CIFAR-100.
def test_vit_tiny_has_the_published_number_of_parameters():
    model = models.vit_tiny(32, 3, 100)
    assert parameters(model) == 5_380_132
    adapted = replace_activations(model, {nn.GELU: RAA}, example=(3, 32, 32))
    assert parameters(adapted) == 5_389_360


def test_activations_that_know_their_channels_come_by_replacement_and_leave_the_function_as_it_is():
    model = models.build("vit_64x4", (3, 16, 16), 10, nn.GELU).eval()
    adapted = replace_activations(model, {nn.GELU: RAA}, example=(3, 16, 16))
    for block in adapted.blocks:
        assert isinstance(block.mlp.act, RAA)
        assert (len(block.mlp.act.weight), block.mlp.act.dim) == (256, -1)
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(adapted(x), model(x), rtol=1e-5, atol=1e-6)


def test_blocks_give_tokens_the_class_token_first():
    model = noisy(small()).eval()
    seen = []
    for block in model.blocks:
        block.register_forward_hook(lambda _, __, out: seen.append(out))
    logits = model(torch.randn(2, 3, 16, 16))
    assert [out.shape for out in seen] == [(2, 17, 24)] * 3
    torch.testing.assert_close(model.head(model.norm(seen[-1][:, 0])), logits)


def test_class_token_and_positions_are_not_decayed():
    model = small()
    spared = parameter_groups(model, 0.05)[1]["params"]
    assert {id(p) for p in spared} == {id(model.cls_token), id(model.pos_embed)}


def test_it_starts_as_it_says():
    torch.manual_seed(0)
    model = small(width=96)
    assert not model.cls_token.any()
    assert model.pos_embed.std().item() == pytest.approx(0.02, rel=0.1)
    for layer in model.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.1)
            assert not layer.bias.any()


def test_branches_are_dropped_for_whole_examples_and_kept_in_expectation():
    torch.manual_seed(0)
    layer = DropPath(0.25)
    x = torch.ones(4000, 3, 2)
    out = layer(x)
    dropped = (out == 0).flatten(1)
    assert torch.equal(dropped.all(1), dropped.any(1))
    assert dropped[:, 0].float().mean().item() == pytest.approx(0.25, abs=0.03)
    torch.testing.assert_close(out[~dropped[:, 0]], torch.full_like(out[~dropped[:, 0]], 4 / 3))
    assert layer.eval()(x) is x


def test_the_rate_of_dropping_grows_with_depth():
    rates = [(block.drop_path1.rate, block.drop_path2.rate) for block in small(drop_path=0.2).blocks]
    assert rates == [(pytest.approx(rate), pytest.approx(rate)) for rate in (0, 0.1, 0.2)]
    tiny = models.build("vit_tiny", (3, 32, 32), 10, PReLU)
    assert tiny.blocks[-1].drop_path1.rate == pytest.approx(0.1)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="patch is 5; allowed are divisors of image_size, 16"):
        small(patch=5)
    with pytest.raises(ValueError, match="heads is 5; allowed are divisors of width, 24"):
        small(heads=5)
    with pytest.raises(ValueError, match="rate is 1"):
        DropPath(1)
    with pytest.raises(ValueError, match=r"input_shape is \(3, 16, 8\) with name 'vit_64x4'; allowed are square"):
        models.build("vit_64x4", (3, 16, 8), 10, nn.GELU)
