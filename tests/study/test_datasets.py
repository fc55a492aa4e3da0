import functools
import hashlib
import io
import os
import socket
import struct
import sys
import threading
import urllib.error
import urllib.request
import zipfile

import pytest
import torch

from companion.study import datasets


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


def no_network(*args, **kwargs):
    raise urllib.error.URLError("no network")


def test_offline_and_absent_says_what_is_missing_and_where(monkeypatch, tmp_path):
    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    with pytest.raises(FileNotFoundError, match="CIFAR10 is not in") as error:
        datasets.load("cifar10", root=tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "COMPANION_DATA" in str(error.value)


@pytest.fixture
def mnist(monkeypatch, tmp_path):
    """Small files in torchvision's layout, and their checksums."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, n in (("train", 200), ("t10k", 50)):
        pixels = bytes(i % 251 for i in range(n * 4))
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">iiii", 2051, n, 2, 2) + pixels)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">ii", 2049, n) + bytes(i % 10 for i in range(n)))
    assert {path.name for path in raw.iterdir()} == set(datasets._MNIST_SHA256)
    for path in raw.iterdir():
        monkeypatch.setitem(datasets._MNIST_SHA256, path.name, hashlib.sha256(path.read_bytes()).hexdigest())
    return tmp_path


def test_mnist_is_read_in_torchvisions_layout(mnist):
    splits = datasets.load("mnist", root=mnist)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (170, 30, 50)
    assert splits.test.inputs.shape[1:] == (1, 2, 2)
    assert splits.num_classes == 10
    assert splits.train.inputs.std() == pytest.approx(1, abs=1e-5)


def test_mnist_is_as_torchvision_reads_it(mnist):
    from torchvision.datasets import MNIST

    test = datasets.load("mnist", root=mnist, standardise=False).test
    theirs = MNIST(mnist, train=False)
    assert torch.equal(test.inputs[:, 0], theirs.data / 255)
    assert torch.equal(test.targets, theirs.targets)


def test_a_copy_of_mnist_in_an_old_format_is_not_taken_instead(mnist):
    (mnist / "MNIST" / "processed").mkdir()
    for name in ("training.pt", "test.pt"):
        torch.save((torch.zeros(3, 2, 2, dtype=torch.uint8), torch.arange(3)), mnist / "MNIST" / "processed" / name)
    assert len(datasets.load("mnist", root=mnist).test) == 50


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def change(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("name", datasets._MNIST_SHA256)
@pytest.mark.parametrize("damage", [cut, change, empty])
def test_a_damaged_file_of_mnist_is_named(mnist, name, damage):
    damage(mnist / "MNIST" / "raw" / name)
    with pytest.raises(ValueError, match=f"{mnist}/MNIST/raw/{name} is damaged: its sha256 is .*; remove it"):
        datasets.load("mnist", root=mnist)


def test_a_damaged_file_of_cifar_is_named_and_no_download_tried(monkeypatch, tmp_path):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: pytest.fail("downloaded"))
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(b"cut")
    with pytest.raises(ValueError, match=r"cifar-10-batches-py/data_batch_3 is damaged: its md5 is .*; remove it"):
        datasets.load("cifar10", root=tmp_path)


@pytest.mark.parametrize("name", ["mnist", "sgemm"])
def test_data_are_asked_for_before_they_are_loaded(monkeypatch, tmp_path, name, mnist, sgemm_folder):
    monkeypatch.setenv("COMPANION_DATA", str(tmp_path))
    (file,) = tmp_path.rglob({"mnist": "train-labels*", "sgemm": "*.csv"}[name])
    datasets.fetch(name)
    cut(file)
    with pytest.raises(ValueError, match=f"{file} is damaged"):
        datasets.fetch(name)
    datasets.fetch("digits")
    file.unlink()
    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    with pytest.raises(FileNotFoundError, match=f"(?s)is not in {tmp_path} and cannot be downloaded .*no network"):
        datasets.fetch(name)


def test_without_torchvision_or_scikit_learn_the_extra_is_named(monkeypatch, tmp_path):
    for module, name in (("torchvision", "cifar10"), ("sklearn", "digits")):
        monkeypatch.setitem(sys.modules, module, None)
        datasets._digits_rest_and_test.cache_clear()
        with pytest.raises(ModuleNotFoundError, match=rf'{module} is missing: pip install ".*\[experiments\]"'):
            datasets.load(name, root=tmp_path)


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100", "imagenette", "sgemm"])
def test_a_download_that_stands_still_ends(monkeypatch, tmp_path, name):
    monkeypatch.setattr(datasets, "_TIMEOUT", 0.2)
    connect = socket.create_connection
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = silent.getsockname()
        monkeypatch.setattr(socket, "create_connection", lambda _, *rest, **more: connect(address, *rest, **more))
        end = threading.Timer(20, silent.close)  # else the test itself would wait for ever
        end.start()
        load = datasets.sgemm if name == "sgemm" else functools.partial(datasets.load, name)
        with pytest.raises(FileNotFoundError, match="timed out"):
            load(root=tmp_path)
        end.cancel()
    assert socket.getdefaulttimeout() is None


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_folders_for_downloads_are_the_users_alone(monkeypatch, tmp_path):
    # The default is also the cache of compiled code, which others must not write to.
    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    before = os.umask(0)
    try:
        with pytest.raises(FileNotFoundError, match="no network"):
            datasets.load("mnist", root=tmp_path / "above" / "data")
    finally:
        os.umask(before)
    assert {(tmp_path / place).stat().st_mode & 0o777 for place in ("above", "above/data")} == {0o700}


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
def sgemm_folder(tmp_path, monkeypatch):
    table, content = sgemm_lines()
    monkeypatch.setattr(datasets, "_SGEMM_SHA256", hashlib.sha256(content).hexdigest())
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


def test_a_cut_file_of_sgemm_is_refused_at_every_load(sgemm_folder):
    _, folder = sgemm_folder
    path = folder / "SGEMM" / "sgemm_product.csv"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:51]))
    for _ in range(2):
        with pytest.raises(ValueError, match=f"{path} is damaged: its sha256 is .*; remove it, and the next call fetc"):
            datasets.sgemm(root=folder)


def archive_of(content, name="sgemm_product.csv"):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, content)
    return packed.getvalue()


def test_sgemm_is_fetched_once_and_checked(monkeypatch, tmp_path):
    _, content = sgemm_lines()
    asked = []

    def answer(address, timeout):
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
        (archive_of(b"1,2")[:-30], "not a zip file"),
        (archive_of(b"1,2").replace(b"1,2", b"1,3"), "Bad CRC"),
        (archive_of(b"1,2", "other.csv"), "no item named"),
    ],
)
def test_sgemm_offline_and_absent_says_what_is_missing_and_where(monkeypatch, tmp_path, answer, reason):
    def asked(address, timeout):
        if answer is None:
            raise urllib.error.URLError("no network")
        return io.BytesIO(answer)

    monkeypatch.setattr(urllib.request, "urlopen", asked)
    with pytest.raises(FileNotFoundError, match=reason) as error:
        datasets.sgemm(root=tmp_path)
    for part in (f"SGEMM/sgemm_product.csv is not in {tmp_path}", "archive.ics.uci.edu", "COMPANION_DATA"):
        assert part in str(error.value)
    assert not (tmp_path / "SGEMM").exists()


@pytest.fixture
def imagenette(monkeypatch, tmp_path):
    """Pictures whose left half is black and whose right half is white; ten or two of a class."""
    from PIL import Image
    from torchvision.datasets import Imagenette

    # 160 pixels high; the middle square has the border in its middle.
    picture = Image.new("RGB", (240, 160))
    picture.paste((255, 255, 255), (120, 0, 240, 160))
    for part, n in (("train", 10), ("val", 2)):
        for wnid in Imagenette._WNID_TO_CLASS:
            folder = tmp_path / "imagenette2-160" / part / wnid
            folder.mkdir(parents=True)
            for i in range(n):
                picture.save(folder / f"{i}.JPEG")
    monkeypatch.setattr(datasets, "_IMAGENETTE_PICTURES", {"train": 100, "val": 20})
    return tmp_path


def test_imagenette_is_resized_to_squares_of_80_pixels(imagenette):
    splits = datasets.load("imagenette", root=imagenette, folds=5, standardise=False)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [80, 20, 20]
    assert splits.num_classes == 10
    assert splits.test.inputs.shape[1:] == (3, 80, 80)
    assert splits.test.targets.tolist() == sorted(splits.test.targets.tolist())
    image = splits.test.inputs[0]
    assert image[:, :, :37].max() < 0.05
    assert image[:, :, 43:].min() > 0.95


def test_a_missing_or_damaged_picture_of_imagenette_is_named(imagenette):
    picture = imagenette / "imagenette2-160" / "val" / "n03888257" / "1.JPEG"
    content = picture.read_bytes()
    for damaged in (content[:-200], b"", content[:20]):
        picture.write_bytes(damaged)
        datasets._torchvision_part.cache_clear()
        with pytest.raises(ValueError, match=f"{picture} is damaged"):
            datasets.load("imagenette", root=imagenette, folds=5)
    picture.unlink()
    with pytest.raises(ValueError, match=r"imagenette2-160/val is damaged: it holds 19 pictures, not 20; remove"):
        datasets.load("imagenette", root=imagenette, folds=5)


def test_wrong_labels_are_wrong_and_as_many_as_asked_for_whatever_else_the_seed_draws():
    splits = datasets.digits()
    noisy = datasets.with_wrong_labels(splits, 0.3, seed=5)
    differs = noisy.train.targets != splits.train.targets
    assert int(differs.sum()) == round(0.3 * len(splits.train))
    assert noisy.test is splits.test
    shifts = torch.bincount((noisy.train.targets - splits.train.targets)[differs] % 10, minlength=10)
    assert shifts[0] == 0
    assert int(shifts[1:].min()) > 20
    drawn = torch.randperm(len(splits.train), generator=torch.Generator().manual_seed(5))[:500]
    assert 0.2 < float(differs[drawn].float().mean()) < 0.4
    assert torch.equal(
        datasets.with_wrong_labels(splits, 1.0, 0).train.targets == splits.train.targets,
        torch.zeros(len(differs)).bool(),
    )
    with pytest.raises(ValueError, match="fraction is 2; allowed are numbers from 0 to 1"):
        datasets.with_wrong_labels(splits, 2, 0)
