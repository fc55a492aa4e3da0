import math

import numpy
import pytest
import torch
from scipy import ndimage

from companion.study.together import corruptions
from companion.study.together.corruptions import CIFAR_C, corrupted
from tests.cases import together


def pictures(n=6, side=32):
    """Smooth, as photographs are, in 8 bits."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, side, side, generator=generator).cumsum(2).cumsum(3) / side
    return (255 * x.sigmoid()).round() / 255


def generator():
    return torch.Generator().manual_seed(0)


def rms(x):
    return float(x.square().mean().sqrt())


@together("name", CIFAR_C)
def test_images_come_out_in_eight_bits_changed_and_always_the_same(name):
    images = pictures()
    out = corrupted(name, images)
    assert out.shape == images.shape
    levels = 255 * out
    torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-4)
    assert 0 <= out.min() <= out.max() <= 1
    assert 0.01 < rms(out - images) < 0.3
    assert torch.equal(out, corrupted(name, images))


def test_there_are_fourteen_and_frost_is_not_one():
    assert len(CIFAR_C) == 14
    with pytest.raises(ValueError, match="name is 'frost'; allowed are gaussian_noise, shot_noise"):
        corrupted("frost", pictures())


def test_images_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"images has shape \(2, 1, 8, 8\); allowed is"):
        corrupted("fog", torch.zeros(2, 1, 8, 8))
    with pytest.raises(ValueError, match="a power of two"):
        corrupted("fog", torch.zeros(2, 3, 12, 12))


def test_noises_have_the_strengths_of_the_files():
    grey = torch.full((40, 3, 32, 32), 0.5)
    assert CIFAR_C["gaussian_noise"](grey, generator()).std() == pytest.approx(0.08, rel=0.02)
    # a Poisson number of 100 x, divided by 100
    assert CIFAR_C["shot_noise"](grey, generator()).std() == pytest.approx((0.5 / 100) ** 0.5, rel=0.02)
    hit = CIFAR_C["impulse_noise"](grey, generator())
    assert (hit != 0.5).float().mean() == pytest.approx(0.03, rel=0.05)
    assert {*hit.unique().tolist()} == {0.0, 0.5, 1.0}


def test_glass_is_the_authors_loop():
    image = pictures(1)
    blurred = corruptions._eight_bits(corruptions._bell(image, 0.4, 2, "replicate"))
    up, left = torch.randint(0, 2, (2, 1, 32, 32), generator=generator())
    loop = blurred.clone()
    for h in range(31, 1, -1):
        for w in range(31, 1, -1):
            loop[:, :, h, w] = loop[:, :, h - up[0, h, w], w - left[0, h, w]]
    expected = corruptions._bell(loop, 0.4, 2, "replicate")
    torch.testing.assert_close(CIFAR_C["glass_blur"](image, generator()), expected)


def test_blurs_are_scipys():
    image = pictures(1)
    blurred = ndimage.gaussian_filter(image.numpy(), 0.4, axes=(2, 3), mode="nearest", truncate=4)
    numpy.testing.assert_allclose(corruptions._bell(image, 0.4, 2, "replicate").numpy(), blurred, atol=1e-6)
    blurred = ndimage.gaussian_filter(image.numpy(), 1.92, axes=(2, 3), mode="reflect", truncate=3)
    numpy.testing.assert_allclose(corruptions._bell_symmetric(image, 1.92, 3).numpy(), blurred, atol=1e-6)


@together("factor", [1.0, 1.01, 1.07, 1.15, 1.75])
def test_coming_nearer_is_scipys_zoom(factor):
    image = pictures(1)
    kept = math.ceil(32 / factor)
    start = (32 - kept) // 2
    part = image[0, :, start : start + kept, start : start + kept].numpy()
    large = ndimage.zoom(part, (1, factor, factor), order=1)
    start = (large.shape[-1] - 32) // 2
    expected = large[:, start : start + 32, start : start + 32]
    numpy.testing.assert_allclose(corruptions._nearer(image, factor)[0].numpy(), expected, atol=1e-5)


def test_a_moving_camera_smears_a_point_along_its_line():
    point = torch.zeros(2, 1, 32, 32)
    point[:, :, 16, 16] = 1
    smeared = corruptions._along(point, 6, 2.0, torch.tensor([0.0, -90.0]))
    weights = torch.exp(-torch.arange(13.0).square() / 8)
    weights = weights / weights.sum()
    # along the row from right to left, and down the column
    torch.testing.assert_close(smeared[0, 0, 16, 4:17].flip(0), weights)
    torch.testing.assert_close(smeared[1, 0, 16:29, 16], weights)
    assert smeared.sum() == pytest.approx(2)


def test_fog_is_a_torus_of_clouds():
    clouds = corruptions._plasma(200, 32, 2.5, generator())
    assert torch.equal(clouds.amin((1, 2)), torch.zeros(200))
    assert torch.equal(clouds.amax((1, 2)), torch.ones(200))
    # neighbours are as alike across the border as inside
    across, inside = (clouds[:, :, a] - clouds[:, :, b] for a, b in ((0, 31), (16, 15)))
    assert rms(across) == pytest.approx(rms(inside), rel=0.15)
    assert rms(inside) < 0.5 * rms(clouds - clouds.mean())


def test_fog_keeps_black_images_black_and_the_brightest_within_its_brightness():
    assert CIFAR_C["fog"](torch.zeros(1, 3, 32, 32), generator()).max() == 0
    images = pictures()
    assert bool((CIFAR_C["fog"](images, generator()).amax((1, 2, 3)) <= images.amax((1, 2, 3)) + 1e-6).all())


def test_brightness_changes_neither_hue_nor_saturation():
    import colorsys

    for r, g, b in ((0.2, 0.4, 0.1), (0.9, 0.95, 0.3), (0.0, 0.0, 0.0), (0.5, 0.5, 0.5)):
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        expected = colorsys.hsv_to_rgb(h, s, min(1, v + 0.15))
        pixel = torch.tensor([r, g, b]).view(1, 3, 1, 1)
        assert CIFAR_C["brightness"](pixel, generator()).flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_an_elastic_image_that_is_neither_turned_nor_shifted_stays():
    image = pictures(1)
    axis = torch.arange(32.0)
    places = torch.stack([axis.expand(32, 32), axis[:, None].expand(32, 32)], 2).view(1, -1, 2)
    for borders in ("pixels", "edges"):
        torch.testing.assert_close(corruptions._looked_up(image, places, borders), image, rtol=0, atol=1e-5)
    # beyond the border, the two mirrors
    shifted = (places + torch.tensor([-2.0, 0.0])).view(1, -1, 2)
    for borders, mode in (("pixels", "mirror"), ("edges", "reflect")):
        expected = ndimage.shift(image.numpy(), (0, 0, 0, 2), order=1, mode=mode)
        numpy.testing.assert_allclose(corruptions._looked_up(image, shifted, borders).numpy(), expected, atol=1e-5)


def test_snow_whitens_and_falls():
    images = pictures()
    out = CIFAR_C["snow"](images, generator())
    assert bool((out >= 0.9 * images + 0.1 * images - 1e-6).all())
    assert out.mean() > images.mean() + 0.03


def test_coarse_pixels_and_compression_are_pillows():
    images = pictures()
    # 27 pixels for 32: most of a smooth picture stays
    assert 0.005 < rms(corrupted("pixelate", images) - images) < 0.1
    assert 0.005 < rms(corrupted("jpeg_compression", images) - images) < 0.1
