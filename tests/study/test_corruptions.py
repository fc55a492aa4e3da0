import pytest
import torch
from torchvision.transforms.functional import adjust_contrast
from torchvision.transforms.functional import gaussian_blur as published_blur

from companion.study.corruptions import CORRUPTIONS, SEVERITIES, contrast, gaussian, gaussian_blur, poisson

# Mean and deviation of the four kinds of normal noise: section 4.2.2 of the paper.
GAUSSIAN = {
    "gaussian_1": (0.0, 0.05),
    "gaussian_2": (0.1, 0.05),
    "gaussian_3": (0.0, 0.1),
    "gaussian_4": (0.1, 0.1),
}
N = 400_000


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_there_are_the_six_noises_of_the_paper():
    assert list(CORRUPTIONS) == [*GAUSSIAN, "poisson", "blur"]


@pytest.mark.parametrize("name", GAUSSIAN)
def test_normal_noise_has_the_moments_that_its_name_stands_for(name):
    mean, std = GAUSSIAN[name]
    images = torch.full((N,), 0.3, dtype=torch.float64)
    noise = CORRUPTIONS[name](images, generator()) - images
    # Five standard errors: a wrong mean or deviation of the paper's list is at least 0.05 away.
    assert abs(noise.mean() - mean) < 5 * std / N**0.5
    assert abs(noise.std() - std) < 5 * std / (2 * N) ** 0.5


def test_normal_noise_is_independent_between_pixels_and_is_not_clipped():
    noisy = gaussian(torch.zeros(200_000, 2), generator(), std=0.1)
    assert abs(torch.corrcoef(noisy.T)[0, 1]) < 0.012
    assert 0.49 < (noisy < 0).float().mean() < 0.51
    assert (gaussian(torch.ones(1000), generator(), std=0.1) > 1).any()


def test_normal_noise_without_deviation_is_a_shift():
    images = torch.rand(3, 1, 4, 4)
    assert torch.equal(gaussian(images, generator(), mean=0.1, std=0.0), images + 0.1)


@pytest.mark.parametrize("value", [0.02, 0.5, 1.0])
def test_poisson_noise_counts_photons(value):
    noisy = poisson(torch.full((N,), value, dtype=torch.float64), generator())
    std = (value / 255) ** 0.5
    assert abs(noisy.mean() - value) < 5 * std / N**0.5
    # The variance of a sample variance of a Poisson number with mean m is (m + 2m²)/n.
    mean = 255 * value
    assert abs(noisy.var() * 255**2 - mean) < 5 * ((mean + 2 * mean**2) / N) ** 0.5
    torch.testing.assert_close(255 * noisy, (255 * noisy).round())


def test_black_has_no_poisson_noise():
    assert torch.equal(poisson(torch.zeros(5, 5), generator()), torch.zeros(5, 5))


@pytest.mark.parametrize(("size", "sigma"), [(3, 1.0), (5, 0.7), (7, 3.0), (1, 1.0)])
def test_the_blur_is_torchvisions(size, sigma):
    images = torch.rand(2, 3, 9, 8, generator=generator())
    torch.testing.assert_close(gaussian_blur(images, size, sigma), published_blur(images, [size, size], [sigma, sigma]))


def test_the_kernel_of_the_blur_sums_to_one_and_is_symmetric():
    point = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    point[0, 0, 2, 2] = 1
    blurred = gaussian_blur(point)[0, 0]
    assert blurred.sum().item() == pytest.approx(1)
    assert torch.equal(blurred, blurred.flip(0))
    torch.testing.assert_close(blurred, blurred.T)
    # exp(−½) between neighbours.
    assert (blurred[2, 1] / blurred[2, 2]).item() == pytest.approx(0.6065306597126334)
    assert blurred[2, 0] == 0


def test_channels_are_blurred_by_themselves():
    images = torch.zeros(1, 2, 5, 5)
    images[0, 1, 2, 2] = 1
    assert torch.equal(gaussian_blur(images)[0, 0], torch.zeros(5, 5))


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_generator_decides_and_the_images_stay(name):
    images = torch.rand(4, 3, 8, 8, generator=generator(1))
    before = images.clone()
    first, again, other = (CORRUPTIONS[name](images, generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name == "blur")
    assert torch.equal(images, before)
    assert (first.shape, first.dtype) == (images.shape, images.dtype)
    assert not torch.equal(first, images)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_bytes_are_no_images_between_0_and_1(name):
    with pytest.raises(TypeError, match=r"images has dtype torch\.uint8"):
        CORRUPTIONS[name](torch.zeros(1, 1, 8, 8, dtype=torch.uint8), generator())


def test_impossible_noises_are_errors():
    images = torch.zeros(1, 1, 8, 8)
    with pytest.raises(ValueError, match=r"std is -0\.1"):
        gaussian(images, generator(), std=-0.1)
    for size, sigma in ((2, 1.0), (0, 1.0), (3, 0.0)):
        with pytest.raises(ValueError, match=f"size is {size}"):
            gaussian_blur(images, size, sigma)
    with pytest.raises(ValueError, match=r"share is -0\.5"):
        contrast(images, -0.5)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_contrast_is_torchvisions_for_grey_images(share):
    images = torch.rand(1, 1, 6, 5, generator=generator())
    torch.testing.assert_close(contrast(images, share), adjust_contrast(images, share))


def test_the_contrast_of_every_channel_and_image_is_its_own():
    images = torch.rand(2, 3, 4, 4, generator=generator())
    shrunk = contrast(images, 0.25)
    torch.testing.assert_close(shrunk.mean((2, 3)), images.mean((2, 3)))
    torch.testing.assert_close(shrunk.std((2, 3)), images.std((2, 3)) / 4)


@pytest.mark.parametrize("kind", SEVERITIES)
def test_five_severities_each_move_the_images_further_and_stay_images(kind):
    images = torch.rand(20, 1, 8, 8, generator=generator(1))
    corrupted = [corrupt(images, generator()) for corrupt in SEVERITIES[kind]]
    distances = [(each - images).square().mean().item() for each in corrupted]
    assert len(distances) == 5
    assert distances == sorted(distances)
    assert distances[0] > 0
    assert all(each.min() >= 0 and each.max() <= 1 for each in corrupted)
