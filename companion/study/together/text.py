"""Text as numbers, one a character: tiny Shakespeare, and windows of it to learn from."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from companion.study.datasets import Part, data_root
from companion.study.together.downloads import downloaded

__all__ = ["Text", "random_windows", "shakespeare", "successive_windows", "syllables"]

_FILE = "tinyshakespeare/input.txt"
_ADDRESS = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
# Of the text; what is left, the end, is for the test.
_TRAIN, _VALIDATION = 0.9, 0.05


@dataclass(frozen=True)
class Text:
    """A text in three pieces, which follow each other.

    Parameters
    ----------
    train, validation, test : Tensor
        (characters,), int64: places in the alphabet.
    alphabet : str
        Every character of the text once, sorted.
    """

    train: Tensor
    validation: Tensor
    test: Tensor
    alphabet: str


def shakespeare(root: Path | str | None = None) -> Text:
    """Return a million characters of Shakespeare's plays: nine tenths to learn from, the rest in equal parts.

    Parameters
    ----------
    root : path, optional
        The folder with, or for, ``tinyshakespeare/input.txt``; default: `companion.study.datasets.data_root`.

    Returns
    -------
    Text
        1,003,854, 55,769 and 55,771 characters of 65 kinds.

    Raises
    ------
    FileNotFoundError
        If the file is absent and cannot be downloaded.
    ValueError
        If it is damaged.

    References
    ----------
    Karpathy (2015), The unreasonable effectiveness of recurrent neural networks.
    """
    return _read(downloaded((Path(root) if root is not None else data_root()) / _FILE, _ADDRESS, _SHA256))


@cache
def _read(path: Path) -> Text:
    return _in_pieces(path.read_text(encoding="utf-8"))


def _in_pieces(text: str) -> Text:
    alphabet = "".join(sorted(set(text)))
    place = {character: index for index, character in enumerate(alphabet)}
    numbers = torch.tensor([place[character] for character in text])
    first, second = int(_TRAIN * len(text)), int((_TRAIN + _VALIDATION) * len(text))
    return Text(numbers[:first], numbers[first:second], numbers[second:], alphabet)


def syllables(length: int = 4000) -> Text:
    """Return nonsense of four syllables in random order, always the same, for tests that have no data.

    Parameters
    ----------
    length : int
        How many syllables.

    Returns
    -------
    Text
        In the proportions of `shakespeare`.

    Examples
    --------
    >>> syllables().alphabet
    'abcdeio'
    """
    order = torch.randint(0, 4, (length,), generator=torch.Generator().manual_seed(0))
    return _in_pieces("".join(("abe", "ac", "dio", "bed")[syllable] for syllable in order.tolist()))


def random_windows(text: Tensor, length: int, characters: int, seed: int) -> Part:
    """Return pieces of a text from random places, and for each character of them the next one.

    Parameters
    ----------
    text : Tensor
        (characters,), int64.
    length : int
        Of a piece.
    characters : int
        How many are to be predicted in all, rounded down to whole pieces.
    seed : int
        Of the places.

    Returns
    -------
    Part
        Inputs and targets (pieces, length).

    Examples
    --------
    >>> part = random_windows(torch.arange(100), length=4, characters=10, seed=0)
    >>> part.inputs.shape, bool((part.targets == part.inputs + 1).all())
    (torch.Size([2, 4]), True)
    """
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(0, len(text) - length, (characters // length, 1), generator=generator)
    pieces = text[starts + torch.arange(length + 1)]
    return Part(pieces[:, :-1], pieces[:, 1:])


def successive_windows(text: Tensor, length: int) -> Part:
    """Return the pieces of a text that follow each other, and for each character of them the next one.

    Parameters
    ----------
    text : Tensor
        (characters,), int64.
    length : int
        Of a piece.

    Returns
    -------
    Part
        Inputs and targets (pieces, length). What is left at the end, less than a piece, is in none.

    Examples
    --------
    >>> successive_windows(torch.arange(10), length=4).inputs
    tensor([[0, 1, 2, 3],
            [4, 5, 6, 7]])
    """
    pieces = (len(text) - 1) // length
    return Part(text[: pieces * length].view(-1, length), text[1 : pieces * length + 1].view(-1, length))
