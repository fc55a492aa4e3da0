"""Data for the experiments, as tensors: split, standardised, and made long-tailed on demand.

The digits come with scikit-learn and need no download. MNIST, CIFAR and Imagenette come through torchvision, and SGEMM
comes from the UCI repository. They lie in ``$COMPANION_DATA`` (default ``~/.cache/companion``).

What lies there is checked whenever it is loaded, not only when it arrives: SGEMM and MNIST by the SHA-256 of their
files, CIFAR by torchvision's checksums, Imagenette by the number of its pictures, each of which must be whole.
"""

import hashlib
import http.client
import io
import os
import socket
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from companion.extras import need
from companion.files import make_folder, write_atomically

__all__ = [
    "Part",
    "Splits",
    "channel_statistics",
    "data_root",
    "digits",
    "fetch",
    "frequent_and_rare",
    "load",
    "long_tailed",
    "long_tailed_sizes",
    "random_crop_and_mirror",
    "sgemm",
    "with_long_tail",
    "with_wrong_labels",
]

_DIGITS_TEST_FRACTION = 0.25
# Of scikit-learn's digits, whose smallest is 0.
_DIGITS_WHITE = 16
_VALIDATION_FRACTION = 0.15
_TORCHVISION = {"mnist": "MNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100", "imagenette": "Imagenette"}
_IMAGENETTE_SIZE = 80

# Seconds without a byte after which a download is given up.
_TIMEOUT = 60

_MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_IMAGENETTE_FOLDER = "imagenette2-160"
_IMAGENETTE_PICTURES = {"train": 9469, "val": 3925}

_SGEMM_FILE = "SGEMM/sgemm_product.csv"
_SGEMM_ADDRESS = "https://archive.ics.uci.edu/static/public/440/sgemm+gpu+kernel+performance.zip"
_SGEMM_SHA256 = "b545b908c203eaa4d0b78c88e3a7196857efc34da3b6da9be774f017f2b5e960"
# Columns of the file: ten parameters that are powers of two, four that are 0 or 1, the times of four runs.
_SGEMM_POWERS, _SGEMM_PARAMETERS, _SGEMM_RUN = 10, 14, 14
_SGEMM_FRACTION = 0.15


@dataclass(frozen=True)
class Part:
    """Images and their classes, or numbers and what to predict from them.

    Parameters
    ----------
    inputs : Tensor
        Shape (N, C, H, W), float32; for regression (N, variables).
    targets : Tensor
        Shape (N,), int64; for regression float32.
    """

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def subset(self, indices: Tensor) -> "Part":
        """Return the examples at `indices`."""
        return Part(self.inputs[indices], self.targets[indices])

    def to(self, device: torch.device | str) -> "Part":
        """Return this part on another device."""
        return Part(self.inputs.to(device), self.targets.to(device))


@dataclass(frozen=True)
class Splits:
    """What a training run learns from, what it is tuned on, and what it is judged by.

    Parameters
    ----------
    train, validation, test : Part
        Disjoint.
    num_classes : int
        Classes are 0 … num_classes − 1; for regression 0.
    """

    train: Part
    validation: Part
    test: Part
    num_classes: int

    def to(self, device: torch.device | str) -> "Splits":
        """Return all parts on another device."""
        return Splits(self.train.to(device), self.validation.to(device), self.test.to(device), self.num_classes)


def digits(seed: int = 0) -> Splits:
    """Return scikit-learn's 1,797 handwritten digits, 8×8 pixels.

    The test part is the same for every seed: learning rates are tuned with other seeds than those that are
    evaluated, and no tuning run may see a test image. The seed decides which of the other images train and
    which validate. All splits are stratified: each part has the classes in the proportions of the whole.

    Parameters
    ----------
    seed : int
        Decides the split into training and validation.

    Returns
    -------
    Splits
        About 1145 training, 202 validation and 450 test images of shape (1, 8, 8), standardised by the mean
        and the deviation of all training pixels.

    Examples
    --------
    >>> splits = digits()
    >>> splits.train.inputs.shape[1:], len(splits.test)
    (torch.Size([1, 8, 8]), 450)
    """
    return load("digits", seed)


def load(
    name: str,
    seed: int = 0,
    root: Path | str | None = None,
    *,
    validation: float = _VALIDATION_FRACTION,
    folds: int | None = None,
    standardise: bool = True,
) -> Splits:
    """Return a data set of images by name.

    Imagenette is the set of 160 pixels: the shorter side is resized to 80 pixels and the middle 80×80 are kept.

    Parameters
    ----------
    name : str
        "digits", "mnist", "cifar10", "cifar100" or "imagenette".
    seed : int
        Decides the split into training and validation. The test part of torchvision's sets is the official
        one.
    root : path, optional
        Where torchvision's files lie or go to; default: `data_root`.
    validation : float
        Fraction of the images outside the test part that validate; with 0 all of them train.
    folds : int, optional
        For cross-validation, instead of the fraction: the images outside the test part are cut into so many parts of
        equal size, the same for every seed, and part number ``seed % folds`` validates.
    standardise : bool
        Whether to standardise by the training part's mean and deviation per channel. Otherwise pixels are
        between 0 (black) and 1, for noise and crops that come first; see `channel_statistics`.

    Returns
    -------
    Splits
        Shape (N, C, H, W), float32.

    Raises
    ------
    ValueError
        If the name is unknown, the fraction is not in [0, 1) or there are fewer than two folds. If a file is damaged;
        the message names it.
    FileNotFoundError
        If the files are absent and cannot be downloaded.
    ModuleNotFoundError
        If scikit-learn or torchvision is missing.
    """
    if not 0 <= validation < 1:
        raise ValueError(f"validation is {validation}; allowed is 0 ≤ validation < 1")
    if folds is not None and folds < 2:
        raise ValueError(f"folds is {folds}; allowed is 2 or more")
    if name == "digits":
        rest, test = _digits_rest_and_test()
    elif name in _TORCHVISION:
        folder = Path(root) if root is not None else data_root()
        rest, test = (_torchvision_part(_TORCHVISION[name], folder, train) for train in (True, False))
    else:
        allowed = ", ".join(["digits", *_TORCHVISION])
        raise ValueError(f"name is {name!r}; allowed are {allowed}")
    if folds is not None:
        train, held_out = _fold(rest, folds, seed)
    elif validation > 0:
        train, held_out = _stratified(rest, validation, seed)
    else:
        train, held_out = rest, rest.subset(torch.arange(0))
    splits = Splits(train, held_out, test, num_classes=int(test.targets.max()) + 1)
    return _standardised(splits) if standardise else splits


def sgemm(seed: int = 0, root: Path | str | None = None) -> Splits:
    """Return how long a matrix product on a GPU takes, for 241,600 settings of a tunable kernel.

    Ten of the inputs are sizes, powers of two, and their logarithm is taken; four switch something on or off. The
    target is log₂ of the time in milliseconds. The file has four runs of each setting; the target is the first run
    alone. Runs of one setting differ by a variance of about 3e-4 in log₂, and no mean squared error can be below it.

    As everywhere here, the test part is the same for every seed.

    Parameters
    ----------
    seed : int
        Decides the split into training and validation.
    root : path, optional
        The folder with, or for, ``SGEMM/sgemm_product.csv``; default: `data_root`.

    Returns
    -------
    Splits
        70 %, 15 % and 15 % of the settings: inputs (N, 14), standardised by the training part's mean and deviation of
        each variable; targets (N,), float32, not standardised.

    Raises
    ------
    FileNotFoundError
        If the file is absent and cannot be downloaded.
    ValueError
        If it is damaged.

    References
    ----------
    Ballester-Ripoll, Paredes and Pajarola (2019), Sobol tensor trains for global sensitivity analysis; UCI Machine
    Learning Repository, data set 440. Metta et al. (2023), section 5, has the transformations and the fractions.
    """
    table = _sgemm_table(Path(root) if root is not None else data_root())
    inputs = torch.cat([table[:, :_SGEMM_POWERS].log2(), table[:, _SGEMM_POWERS:_SGEMM_PARAMETERS]], dim=1)
    whole = Part(inputs, table[:, _SGEMM_RUN].log2())
    size = round(_SGEMM_FRACTION * len(whole))
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(0))
    rest, test = whole.subset(order[size:]), whole.subset(order[:size])
    order = torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed))
    train, validation = rest.subset(order[size:]), rest.subset(order[:size])
    deviation, mean = torch.std_mean(train.inputs, dim=0)

    def standardise(part: Part) -> Part:
        return replace(part, inputs=(part.inputs - mean) / deviation)

    return Splits(standardise(train), standardise(validation), standardise(test), num_classes=0)


def fetch(name: str) -> None:
    """Make sure that the files of a data set are in `data_root` and whole; download what is absent.

    Parameters
    ----------
    name : str
        One that `load` knows, or "sgemm". Data of any other name are not files.

    Raises
    ------
    FileNotFoundError
        If files are absent and cannot be downloaded.
    ValueError
        If a file is damaged; the message names it.
    ModuleNotFoundError
        If torchvision is missing.
    """
    if name == "sgemm":
        _sgemm_file(data_root())
    elif name in _TORCHVISION:
        _ensure(_TORCHVISION[name], data_root())


def channel_statistics(part: Part) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of every channel, over images and pixels.

    Parameters
    ----------
    part : Part
        The training part, as a rule.

    Returns
    -------
    mean, deviation : Tensor
        Shape (1, C, 1, 1).

    Examples
    --------
    >>> mean, deviation = channel_statistics(load("digits", standardise=False).train)
    >>> mean.shape, bool(0 < mean < 1)
    (torch.Size([1, 1, 1, 1]), True)
    """
    deviation, mean = torch.std_mean(part.inputs, dim=(0, 2, 3), keepdim=True)
    return mean, deviation


def data_root() -> Path:
    """Return the folder of downloaded data: ``$COMPANION_DATA``, or ``~/.cache/companion``."""
    return Path(os.environ.get("COMPANION_DATA") or Path.home() / ".cache" / "companion")


def long_tailed_sizes(largest: int, factor: float, num_classes: int) -> list[int]:
    """Return the class sizes of the exponential long tail, the largest first.

    n_c = n_max · factor^(−c/(C−1)), rounded down, but at least one.

    Parameters
    ----------
    largest : int
        Size of the most frequent class.
    factor : float
        Largest size over smallest, at least 1.
    num_classes : int
        Number of classes, at least 2.

    Returns
    -------
    list of int
        One size per class.

    Raises
    ------
    ValueError
        If a number is too small.

    References
    ----------
    Cao et al. (2019), Learning imbalanced datasets with label-distribution-aware margin loss.

    Examples
    --------
    CIFAR-10-LT with factor 100:

    >>> long_tailed_sizes(5000, 100, 10)
    [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    if factor < 1:
        raise ValueError(f"factor is {factor}; allowed is 1 (balanced) or more")
    if largest < 1 or num_classes < 2:
        raise ValueError(f"largest is {largest} and num_classes is {num_classes}; allowed are ≥ 1 and ≥ 2")
    # The 1e-9 keeps 50 from becoming 49 where the power is off by one unit in the last place.
    sizes = (largest * factor ** (-c / (num_classes - 1)) for c in range(num_classes))
    return [max(1, int(size + 1e-9)) for size in sizes]


def long_tailed(labels: Tensor, factor: float, generator: torch.Generator) -> Tensor:
    """Choose the examples that turn a data set into a long-tailed one.

    The generator also decides which class gets which size, so that "rare" is not always the same digit. The
    most frequent class keeps as many examples as the smallest class has; with factor 1 all classes are
    exactly equal.

    Parameters
    ----------
    labels : Tensor
        Shape (N,), classes 0 … C − 1, each at least once.
    factor : float
        Imbalance factor: largest class over smallest, at least 1.
    generator : torch.Generator
        On the CPU.

    Returns
    -------
    Tensor
        Indices into `labels`, sorted, without repetition.

    Raises
    ------
    ValueError
        If the factor is below 1 or a class has no examples.

    Examples
    --------
    >>> labels = torch.arange(3).repeat(100)
    >>> kept = long_tailed(labels, 100, torch.Generator().manual_seed(0))
    >>> sorted(torch.bincount(labels[kept]).tolist())
    [1, 10, 100]
    """
    counts = torch.bincount(labels)
    if int(counts.min()) == 0:
        raise ValueError(f"labels has no example of class {int(counts.argmin())}; each class needs one")
    sizes = long_tailed_sizes(int(counts.min()), factor, len(counts))
    # The order is drawn first, so that frequent_and_rare finds it again from the seed alone.
    order = _class_order(len(counts), generator).tolist()
    kept = []
    for label, size in zip(order, sizes, strict=True):
        members = torch.nonzero(labels == label).squeeze(1)
        kept.append(members[torch.randperm(len(members), generator=generator)[:size]])
    return torch.cat(kept).sort().values


def with_long_tail(splits: Splits, factor: float, seed: int) -> Splits:
    """Return the splits with a long-tailed training part; validation and test stay as they are.

    Parameters
    ----------
    splits : Splits
        What to thin out.
    factor : float
        Imbalance factor, as in `long_tailed`.
    seed : int
        Decides which classes are rare and which examples stay.

    Returns
    -------
    Splits
        The same validation and test parts, a smaller training part.
    """
    generator = torch.Generator().manual_seed(seed)
    kept = long_tailed(splits.train.targets, factor, generator)
    return replace(splits, train=splits.train.subset(kept))


def with_wrong_labels(splits: Splits, fraction: float, seed: int) -> Splits:
    """Return the splits with wrong labels in the training part; validation and test stay as they are.

    Parameters
    ----------
    splits : Splits
        Of a classification with at least two classes.
    fraction : float
        Of the training examples, rounded to a whole number, get another class; each other class is equally probable.
    seed : int
        Decides which examples, and which classes.

    Returns
    -------
    Splits
        The same inputs, other training targets.

    Raises
    ------
    ValueError
        If the fraction is not between 0 and 1.

    Examples
    --------
    >>> right, wrong = digits().train, with_wrong_labels(digits(), 0.1, seed=0).train
    >>> int((right.targets != wrong.targets).sum()) == round(0.1 * len(right))
    True
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction is {fraction}; allowed are numbers from 0 to 1")
    generator = torch.Generator().manual_seed(seed)
    targets = splits.train.targets.clone()
    # The classes are drawn first: examples that are drawn first are those that whoever else has this seed draws, too.
    shift = torch.randint(1, splits.num_classes, (len(targets),), generator=generator)
    chosen = torch.randperm(len(targets), generator=generator)[: round(fraction * len(targets))]
    targets[chosen] = ((targets + shift) % splits.num_classes)[chosen]
    return replace(splits, train=replace(splits.train, targets=targets))


def frequent_and_rare(num_classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the classes that `with_long_tail` makes frequent and rare for this seed, whatever the factor.

    The paper's borders (more than 100 images, fewer than 20) do not fit small data. Here the three tenths of
    the classes with the most training images are frequent and the three tenths with the fewest are rare. With
    factor 1 these groups are a control: their names differ, their sizes do not.

    Parameters
    ----------
    num_classes : int
        Number of classes.
    seed : int
        As given to `with_long_tail`.

    Returns
    -------
    frequent, rare : Tensor
        Classes.

    Examples
    --------
    >>> frequent, rare = frequent_and_rare(10, seed=0)
    >>> len(frequent), len(rare), set(frequent.tolist()) & set(rare.tolist())
    (3, 3, set())
    """
    order = _class_order(num_classes, torch.Generator().manual_seed(seed))
    size = max(1, round(0.3 * num_classes))
    return order[:size], order[-size:]


def random_crop_and_mirror(inputs: Tensor, padding: int = 4) -> Tensor:
    """Return each image shifted by up to `padding` pixels, zeros outside, and mirrored with probability ½.

    Parameters
    ----------
    inputs : Tensor
        Shape (N, C, H, W).
    padding : int
        Largest shift in each direction.

    Returns
    -------
    Tensor
        Shape of `inputs`. Random numbers come from torch's global generator of the CPU.

    Examples
    --------
    >>> random_crop_and_mirror(torch.ones(2, 3, 32, 32)).shape
    torch.Size([2, 3, 32, 32])
    """
    n, channels, height, width = inputs.shape
    device = inputs.device
    padded = nn.functional.pad(inputs, (padding,) * 4)
    down, right = torch.randint(0, 2 * padding + 1, (2, n, 1)).to(device)
    mirrored = torch.rand(n, 1).to(device) < 0.5
    rows = torch.arange(height, device=device) + down
    columns = torch.arange(width, device=device)
    columns = torch.where(mirrored, columns.flip(0), columns) + right
    image = torch.arange(n, device=device)[:, None, None, None]
    channel = torch.arange(channels, device=device)[None, :, None, None]
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def _class_order(num_classes: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(num_classes, generator=generator)


@cache
def _digits_rest_and_test() -> tuple[Part, Part]:
    need("experiments", "sklearn")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    whole = Part(
        torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / _DIGITS_WHITE,
        torch.tensor(bunch.target, dtype=torch.int64),
    )
    return _stratified(whole, _DIGITS_TEST_FRACTION, seed=0)


def _stratified(whole: Part, fraction: float, seed: int) -> tuple[Part, Part]:
    need("experiments", "sklearn")
    from sklearn.model_selection import train_test_split

    indices = torch.arange(len(whole)).numpy()
    first, second = train_test_split(indices, test_size=fraction, random_state=seed, stratify=whole.targets.numpy())
    return whole.subset(torch.from_numpy(first)), whole.subset(torch.from_numpy(second))


def _fold(whole: Part, folds: int, seed: int) -> tuple[Part, Part]:
    need("experiments", "sklearn")
    from sklearn.model_selection import StratifiedKFold

    targets = whole.targets.numpy()
    cuts = list(StratifiedKFold(folds, shuffle=True, random_state=0).split(targets, targets))
    first, second = cuts[seed % folds]
    return whole.subset(torch.from_numpy(first)), whole.subset(torch.from_numpy(second))


def _standardised(splits: Splits) -> Splits:
    mean, deviation = channel_statistics(splits.train)

    def standardise(part: Part) -> Part:
        return replace(part, inputs=(part.inputs - mean) / deviation)

    return Splits(
        standardise(splits.train), standardise(splits.validation), standardise(splits.test), splits.num_classes
    )


@cache
def _torchvision_part(name: str, folder: Path, train: bool) -> Part:
    _ensure(name, folder)
    if name == "MNIST":
        from torchvision.datasets import mnist

        # Not by the class: where a copy in its old format lies beside these files, which are checked, it takes that.
        images, labels = (str(path) for path in _files(name, folder) if path.name.startswith("train") == train)
        return Part(mnist.read_image_file(images).unsqueeze(1).to(torch.float32) / 255, mnist.read_label_file(labels))
    from torchvision import datasets

    if name == "Imagenette":
        split = "train" if train else "val"
        pictures = datasets.Imagenette(folder, split, "160px", transform=_small_square, loader=_read_picture)
        squares, targets = zip(*pictures, strict=True)
        return Part(torch.stack(squares), torch.tensor(targets))
    data = getattr(datasets, name)(folder, train)
    inputs = torch.as_tensor(data.data).permute(0, 3, 1, 2)  # from (N, H, W, C)
    return Part(inputs.to(torch.float32) / 255, torch.as_tensor(data.targets, dtype=torch.int64))


def _ensure(name: str, folder: Path) -> None:
    """Check torchvision's files of a data set; before that, download them if one is absent."""
    need("experiments", "torchvision")
    files = _files(name, folder)
    _check({path: checksum for path, checksum in files.items() if path.is_file()})
    if name == "Imagenette":
        if not (folder / _IMAGENETTE_FOLDER).is_dir():
            _download(name, folder)
        for split, wanted in _IMAGENETTE_PICTURES.items():
            found = sum(1 for _ in (folder / _IMAGENETTE_FOLDER / split).glob("*/*.JPEG"))
            if found != wanted:
                raise ValueError(
                    f"{folder / _IMAGENETTE_FOLDER / split} is damaged: it holds {found} pictures, not {wanted}; "
                    f"remove {_IMAGENETTE_FOLDER}, and the next call fetches it again"
                )
    elif not all(path.is_file() for path in files):
        _download(name, folder)
        _check(files)


def _download(name: str, folder: Path) -> None:
    try:
        from torchvision import datasets

        make_folder(folder)
        with _time_limit():
            if name == "Imagenette":
                datasets.Imagenette(folder, size="160px", download=True)
            else:
                getattr(datasets, name)(folder, download=True)
    except (RuntimeError, OSError, EOFError, http.client.HTTPException, zlib.error) as error:
        raise FileNotFoundError(
            f"{name} is not in {folder} and cannot be downloaded ({error}); with a network this call fetches "
            f"it, without one copy torchvision's files of {name} into that folder, or set COMPANION_DATA to "
            "the folder that has them"
        ) from error


@contextmanager
def _time_limit() -> Iterator[None]:
    """Let connections give up that nobody has given a limit: torchvision's, which takes none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT if before is None else before)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _files(name: str, folder: Path) -> dict[Path, tuple[str, str]]:
    """Return the files of a data set, as far as they are listed one by one, and the checksum of each."""
    if name == "MNIST":
        return {folder / "MNIST" / "raw" / file: ("sha256", checksum) for file, checksum in _MNIST_SHA256.items()}
    if name == "Imagenette":
        return {}
    from torchvision import datasets

    cifar = getattr(datasets, name)
    listed = [*cifar.train_list, *cifar.test_list, (cifar.meta["filename"], cifar.meta["md5"])]
    return {folder / cifar.base_folder / file: ("md5", checksum) for file, checksum in listed}


def _check(files: Mapping[Path, tuple[str, str]]) -> None:
    """Raise ValueError, which names it, if a file is not what was published."""
    for path, (algorithm, wanted) in files.items():
        with path.open("rb") as file:
            found = hashlib.file_digest(file, partial(hashlib.new, algorithm, usedforsecurity=False)).hexdigest()
        if found != wanted:
            raise ValueError(
                f"{path} is damaged: its {algorithm} is {found}, not {wanted}; remove it, and the next call fetches it "
                "again"
            )


def _read_picture(path: str) -> Any:
    from torchvision.datasets.folder import default_loader

    try:
        return default_loader(path)
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged ({error}); remove {_IMAGENETTE_FOLDER}, and the next call fetches it again"
        ) from error


def _small_square(image: Any) -> Tensor:
    """Return a picture of any size as (3, 80, 80) between 0 and 1."""
    from torchvision.transforms import functional

    resized = functional.resize(image, _IMAGENETTE_SIZE)
    square: Tensor = functional.to_tensor(functional.center_crop(resized, [_IMAGENETTE_SIZE, _IMAGENETTE_SIZE]))
    return square


@cache
def _sgemm_table(folder: Path) -> Tensor:
    """Return SGEMM's file as numbers, (241600, 18)."""
    import numpy

    return torch.from_numpy(numpy.loadtxt(_sgemm_file(folder), numpy.float32, delimiter=",", skiprows=1))


def _sgemm_file(folder: Path) -> Path:
    """Return SGEMM's file, downloaded if it is absent, and checked."""
    path = folder / _SGEMM_FILE
    if not path.is_file():
        content = _sgemm_content(folder)
        make_folder(path.parent)
        write_atomically(path, content)
    _check({path: ("sha256", _SGEMM_SHA256)})
    return path


def _sgemm_content(folder: Path) -> bytes:
    """Download SGEMM's file."""
    name = Path(_SGEMM_FILE).name
    try:
        with urllib.request.urlopen(_SGEMM_ADDRESS, timeout=_TIMEOUT) as answer:
            packed = answer.read()
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            content = archive.read(name)
        if (checksum := hashlib.sha256(content).hexdigest()) != _SGEMM_SHA256:
            raise OSError(f"the file's SHA-256 is {checksum}, not {_SGEMM_SHA256}")
    except (OSError, EOFError, KeyError, http.client.HTTPException, zipfile.BadZipFile, zlib.error) as error:
        raise FileNotFoundError(
            f"{_SGEMM_FILE} is not in {folder} and cannot be downloaded ({error}); with a network this call "
            f"fetches it from {_SGEMM_ADDRESS}, without one put {name} of that archive there, or set "
            "COMPANION_DATA to the folder that has it"
        ) from error
    return content
