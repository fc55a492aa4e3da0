import hashlib
import io
import struct
import urllib.error
import urllib.request
import zipfile

import pytest
import torch

from companion import datasets


def rows_of(part):
    return {tuple(image.flatten().tolist()) for image in part.inputs}


def test_digits_are_split_without_overlap_and_in_proportion():
    splits = datasets.digits(seed=3)
    parts = (splits.train, splits.validation, splits.test)
    assert sum(map(len, parts)) == 1797
    assert splits.train.inputs.shape[1:] == (1, 8, 8)
    for part in parts:
        share = torch.bincount(part.targets, minlength=10) / len(part)
        assert share.min() > 0.08
        assert share.max() < 0.12
    # No two of the 1797 images are equal, so equal images in two parts would be leaks.
    assert not rows_of(splits.train) & rows_of(splits.validation)
    assert not rows_of(splits.train) & rows_of(splits.test)


def test_the_training_digits_are_standardised():
    train = datasets.digits().train.inputs
    assert train.mean().abs() < 1e-5
    assert train.std() == pytest.approx(1, abs=1e-5)


def test_unstandardised_pixels_are_those_between_0_and_1_that_are_standardised():
    raw, standardised = (datasets.load("digits", 3, standardise=choice) for choice in (False, True))
    # Sixteen grey levels above black.
    assert torch.equal(raw.train.inputs * 16, (raw.train.inputs * 16).round())
    assert (raw.train.inputs.min(), raw.train.inputs.max()) == (0, 1)
    mean, deviation = datasets.channel_statistics(raw.train)
    for before, after in ((raw.train, standardised.train), (raw.test, standardised.test)):
        assert torch.equal((before.inputs - mean) / deviation, after.inputs)
        assert torch.equal(before.targets, after.targets)


def test_statistics_are_per_channel():
    inputs = torch.stack([torch.full((5, 4, 4), 0.25), torch.rand(5, 4, 4)], dim=1)
    mean, deviation = datasets.channel_statistics(datasets.Part(inputs, torch.zeros(5, dtype=torch.int64)))
    assert mean.shape == deviation.shape == (1, 2, 1, 1)
    assert (mean[0, 0].item(), deviation[0, 0].item()) == (0.25, 0.0)
    assert mean[0, 1].item() == pytest.approx(inputs[:, 1].mean().item())


@pytest.mark.parametrize(("fraction", "sizes"), [(0, (1347, 0)), (0.1, (1212, 135)), (0.5, (673, 674))])
def test_the_fraction_decides_how_many_images_validate(fraction, sizes):
    splits = datasets.load("digits", validation=fraction)
    assert (len(splits.train), len(splits.validation)) == sizes
    assert torch.equal(splits.test.targets, datasets.load("digits").test.targets)


@pytest.mark.parametrize("fraction", [-0.1, 1])
def test_impossible_fractions_are_errors(fraction):
    with pytest.raises(ValueError, match="0 ≤ validation < 1"):
        datasets.load("digits", validation=fraction)


def test_the_seed_changes_validation_but_never_the_test_images():
    first, second = datasets.digits(seed=0), datasets.digits(seed=1)
    assert torch.equal(first.test.targets, second.test.targets)
    # Up to the standardisation, which follows the training part.
    shapes = [
        torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]
        for a, b in zip(first.test.inputs, second.test.inputs, strict=True)
    ]
    assert min(shapes) > 0.9999
    assert not torch.equal(first.validation.targets, second.validation.targets)


def test_the_same_seed_gives_the_same_digits():
    first, second = (datasets.with_long_tail(datasets.digits(5), 10, 5) for _ in range(2))
    assert torch.equal(first.train.inputs, second.train.inputs)
    assert torch.equal(first.validation.inputs, second.validation.inputs)


# The published sizes of the two benchmarks.
def test_the_profile_is_that_of_cifar_lt():
    assert datasets.long_tailed_sizes(5000, 100, 10) == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert sum(datasets.long_tailed_sizes(500, 100, 100)) == 10847


@pytest.mark.parametrize(("largest", "factor", "classes"), [(10, 0.5, 3), (0, 10, 3), (10, 10, 1)])
def test_impossible_profiles_are_errors(largest, factor, classes):
    with pytest.raises(ValueError, match="allowed"):
        datasets.long_tailed_sizes(largest, factor, classes)


@pytest.mark.parametrize("factor", [1, 10, 100])
def test_the_long_tail_thins_the_training_part_only(factor):
    splits = datasets.digits()
    tailed = datasets.with_long_tail(splits, factor, seed=0)
    smallest = int(torch.bincount(splits.train.targets).min())
    sizes = torch.bincount(tailed.train.targets, minlength=10).sort(descending=True).values.tolist()
    assert sizes == datasets.long_tailed_sizes(smallest, factor, 10)
    assert tailed.test is splits.test
    assert tailed.validation is splits.validation
    assert rows_of(tailed.train) <= rows_of(splits.train)


def test_other_seeds_make_other_classes_rare():
    splits = datasets.digits()
    rarest = {
        int(torch.bincount(datasets.with_long_tail(splits, 100, seed).train.targets, minlength=10).argmin())
        for seed in range(12)
    }
    assert len(rarest) > 3


@pytest.mark.parametrize("seed", [0, 1, 1000])
def test_frequent_and_rare_are_the_classes_with_most_and_fewest_images(seed):
    tailed = datasets.with_long_tail(datasets.digits(seed), 100, seed)
    sizes = torch.bincount(tailed.train.targets, minlength=10)
    frequent, rare = datasets.frequent_and_rare(10, seed)
    assert set(frequent.tolist()) == set(sizes.topk(3).indices.tolist())
    assert set(rare.tolist()) == set((-sizes).topk(3).indices.tolist())


def test_a_class_without_examples_is_an_error():
    with pytest.raises(ValueError, match="no example of class 1"):
        datasets.long_tailed(torch.tensor([0, 2, 2]), 10, torch.Generator())


def test_crops_shift_and_mirror_and_do_nothing_else():
    torch.manual_seed(0)
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 4], image[0, 0, 4, 5] = 1.0, 2.0
    seen = datasets.random_crop_and_mirror(image.expand(400, 2, 9, 9), padding=2)
    assert seen.shape == (400, 2, 9, 9)
    # The pair stays side by side whatever happens; mirrored, the 2 comes first.
    places = (seen[:, 0] == 1).nonzero()
    others = (seen[:, 0] == 2).nonzero()
    assert len(places) == len(others) == 400
    steps = (others - places)[:, 1:]
    assert set(map(tuple, steps.tolist())) == {(0, 1), (0, -1)}
    assert set((places[:, 1] - 4).tolist()) == {-2, -1, 0, 1, 2}
    assert torch.equal(seen[:, 0], seen[:, 1])


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(ValueError, match="allowed are digits, mnist, cifar10, cifar100, imagenette"):
        datasets.load("imagenet")


def test_data_lies_where_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.setenv("COMPANION_DATA", str(tmp_path))
    assert datasets.data_root() == tmp_path
    monkeypatch.delenv("COMPANION_DATA")
    assert datasets.data_root().parts[-2:] == (".cache", "companion")


def test_offline_and_absent_says_what_is_missing_and_where(monkeypatch, tmp_path):
    def offline(*args, **kwargs):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    with pytest.raises(FileNotFoundError, match="CIFAR10 is not in") as error:
        datasets.load("cifar10", root=tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "COMPANION_DATA" in str(error.value)


def test_mnist_is_read_in_torchvisions_layout(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, n in (("train", 200), ("t10k", 50)):
        pixels = bytes(i % 251 for i in range(n * 4))
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">iiii", 2051, n, 2, 2) + pixels)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">ii", 2049, n) + bytes(i % 10 for i in range(n)))
    splits = datasets.load("mnist", root=tmp_path)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (170, 30, 50)
    assert splits.test.inputs.shape[1:] == (1, 2, 2)
    assert splits.num_classes == 10
    assert splits.train.inputs.std() == pytest.approx(1, abs=1e-5)


def test_folds_validate_each_image_once_and_are_the_same_for_every_seed():
    parts = [datasets.load("digits", seed, folds=5, standardise=False) for seed in range(6)]
    whole = rows_of(parts[0].train) | rows_of(parts[0].validation)
    seen = [rows_of(part.validation) for part in parts]
    assert set.union(*seen[:5]) == whole
    assert sum(map(len, seen[:5])) == len(whole) == 1347
    assert seen[5] == seen[0]
    for part in parts:
        assert not rows_of(part.train) & rows_of(part.validation)
        assert torch.equal(part.test.inputs, parts[0].test.inputs)
        assert torch.bincount(part.validation.targets).min() > 20


def test_one_fold_is_an_error():
    with pytest.raises(ValueError, match="folds is 1; allowed is 2 or more"):
        datasets.load("digits", folds=1)


HEADER = "MWG,NWG,KWG,MDIMC,NDIMC,MDIMA,NDIMB,KWI,VWM,VWN,STRM,STRN,SA,SB,Run1 (ms),Run2 (ms),Run3 (ms),Run4 (ms)"


def sgemm_lines(n=400):
    generator = torch.Generator().manual_seed(0)
    powers = 2 ** torch.randint(0, 5, (n, 10), generator=generator)
    switches = torch.randint(0, 2, (n, 4), generator=generator)
    # The row's number, so that a row is found again from its target.
    times = torch.arange(1, n + 1)[:, None] * torch.tensor([1, 1000, 1000, 1000])
    table = torch.cat([powers, switches, times], dim=1)
    return table, "\n".join([HEADER, *(",".join(map(str, row)) for row in table.tolist())]).encode()


@pytest.fixture
def sgemm_folder(tmp_path):
    table, content = sgemm_lines()
    (tmp_path / "SGEMM").mkdir()
    (tmp_path / "SGEMM" / "sgemm_product.csv").write_bytes(content)
    return table, tmp_path


def test_sgemm_is_the_logarithm_of_the_first_run_and_of_the_sizes(sgemm_folder):
    table, folder = sgemm_folder
    splits = datasets.sgemm(seed=3, root=folder)
    parts = (splits.train, splits.validation, splits.test)
    assert [len(part) for part in parts] == [280, 60, 60]
    rows = [(2**part.targets).round().long() - 1 for part in parts]
    assert torch.cat(rows).sort().values.tolist() == list(range(400))
    variables = torch.cat([table[:, :10].double().log2(), table[:, 10:14].double()], dim=1)
    mean = variables[rows[0]].mean(0)
    deviation = variables[rows[0]].std(0)
    for part, own in zip(parts, rows, strict=True):
        torch.testing.assert_close(part.inputs.double(), (variables[own] - mean) / deviation, atol=1e-5, rtol=1e-5)
        assert part.inputs.dtype == part.targets.dtype == torch.float32


def test_sgemms_test_part_is_the_same_for_every_seed(sgemm_folder):
    _, folder = sgemm_folder
    first, second = (datasets.sgemm(seed, folder) for seed in (0, 1))
    assert torch.equal(first.test.targets, second.test.targets)
    assert not torch.equal(first.validation.targets, second.validation.targets)


def archive_of(content, name="sgemm_product.csv"):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, content)
    return packed.getvalue()


def test_sgemm_is_fetched_once_and_checked(monkeypatch, tmp_path):
    _, content = sgemm_lines()
    asked = []

    def answer(address):
        asked.append(address)
        return io.BytesIO(archive_of(content))

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    monkeypatch.setattr(datasets, "_SGEMM_SHA256", hashlib.sha256(content).hexdigest())
    assert len(datasets.sgemm(root=tmp_path).test) == 60
    assert (tmp_path / "SGEMM" / "sgemm_product.csv").read_bytes() == content
    datasets._sgemm_table.cache_clear()
    datasets.sgemm(root=tmp_path)
    assert asked == ["https://archive.ics.uci.edu/static/public/440/sgemm+gpu+kernel+performance.zip"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "no network"),
        (b"not an archive", "not a zip file"),
        (archive_of(b"1,2"), "SHA-256"),
        (archive_of(b"1,2", "other.csv"), "no item named"),
    ],
)
def test_sgemm_offline_and_absent_says_what_is_missing_and_where(monkeypatch, tmp_path, answer, reason):
    def asked(address):
        if answer is None:
            raise urllib.error.URLError("no network")
        return io.BytesIO(answer)

    monkeypatch.setattr(urllib.request, "urlopen", asked)
    with pytest.raises(FileNotFoundError, match=reason) as error:
        datasets.sgemm(root=tmp_path)
    for part in (f"SGEMM/sgemm_product.csv is not in {tmp_path}", "archive.ics.uci.edu", "COMPANION_DATA"):
        assert part in str(error.value)
    assert not (tmp_path / "SGEMM").exists()


def test_imagenette_is_resized_to_squares_of_80_pixels(tmp_path):
    from PIL import Image
    from torchvision.datasets import Imagenette

    # Left half black, right half white, 160 pixels high; the middle square has the border in its middle.
    picture = Image.new("RGB", (240, 160))
    picture.paste((255, 255, 255), (120, 0, 240, 160))
    for part, n in (("train", 10), ("val", 2)):
        for wnid in Imagenette._WNID_TO_CLASS:
            folder = tmp_path / "imagenette2-160" / part / wnid
            folder.mkdir(parents=True)
            for i in range(n):
                picture.save(folder / f"{i}.JPEG")
    splits = datasets.load("imagenette", root=tmp_path, folds=5, standardise=False)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [80, 20, 20]
    assert splits.num_classes == 10
    assert splits.test.inputs.shape[1:] == (3, 80, 80)
    assert splits.test.targets.tolist() == sorted(splits.test.targets.tolist())
    image = splits.test.inputs[0]
    assert image[:, :, :37].max() < 0.05
    assert image[:, :, 43:].min() > 0.95
