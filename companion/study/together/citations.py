"""Graphs of papers that cite each other: Cora and CiteSeer, and a small invented one for tests.

Their files are Python's pickles, which could run anything when they are read. Here they can make arrays, lists and
dictionaries, and nothing else.
"""

import io
import pickle
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.extras import need
from companion.study.datasets import data_root
from companion.study.together.downloads import downloaded

__all__ = ["Citations", "Rows", "invented", "load", "with_split"]

_FOLDER = "planetoid/data"
_ADDRESS = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"
_SHA256 = {
    "citeseer": {
        "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    },
    "cora": {
        "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    },
}


class Rows(nn.Module):
    """A matrix with few numbers in each row, which multiplies others from the left.

    Parameters
    ----------
    places : Tensor
        (2, n), int64: row and column of each number.
    values : Tensor
        (n,), the numbers.
    rows : int
        How many there are.

    Examples
    --------
    >>> matrix = Rows(torch.tensor([[1, 1], [0, 2]]), torch.tensor([0.5, 2.0]), rows=2)
    >>> matrix(torch.tensor([[2.0], [3.0], [4.0]])).tolist()
    [[0.0], [9.0]]
    """

    columns: Tensor
    values: Tensor
    starts: Tensor

    def __init__(self, places: Tensor, values: Tensor, rows: int) -> None:
        super().__init__()
        order = places[0].argsort(stable=True)
        starts = torch.searchsorted(places[0][order].contiguous(), torch.arange(rows, device=places.device))
        # It belongs to the data, and is not saved with a network.
        for name, held in (("columns", places[1][order]), ("values", values[order]), ("starts", starts)):
            self.register_buffer(name, held, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the product with (columns, d)."""
        return F.embedding_bag(self.columns, x, self.starts, mode="sum", per_sample_weights=self.values)


@dataclass(frozen=True)
class Citations:
    """Papers, the words in them, who cites whom, and what they are about.

    Parameters
    ----------
    words : Rows
        Of each paper; they sum to 1, or there are none.
    num_words : int
        Columns of that.
    edges : Tensor
        (2, E), int64: pairs of papers of which one cites the other, each in both directions, none twice.
    targets : Tensor
        (papers,), int64; −1 where nobody knows.
    num_classes : int
        Classes are 0 … num_classes − 1.
    train, validation, test : Tensor
        Papers, int64; disjoint.
    """

    words: Rows
    num_words: int
    edges: Tensor
    targets: Tensor
    num_classes: int
    train: Tensor
    validation: Tensor
    test: Tensor


def load(name: str, root: Path | str | None = None) -> Citations:
    """Return a graph by name, with its published test part and nothing to train or validate with yet.

    Parameters
    ----------
    name : str
        "cora", "citeseer" or "invented".
    root : path, optional
        The folder with, or for, ``planetoid/data``; default: `companion.study.datasets.data_root`.

    Returns
    -------
    Citations
        Cora: 2,708 papers, 1,433 words, 5,278 edges, 7 classes. CiteSeer: 3,327, 3,703, 4,552 and 6; 15 papers are
        without words and class. 1,000 papers test.

    Raises
    ------
    ValueError
        If there is no such graph, or a file is damaged.
    FileNotFoundError
        If a file is absent and cannot be downloaded.

    References
    ----------
    Sen et al. (2008), Collective classification in network data. Yang, Cohen, Salakhutdinov (2016), Revisiting
    semi-supervised learning with graph embeddings.
    """
    if name == "invented":
        return invented()
    if name not in _SHA256:
        raise ValueError(f"name is {name!r}; allowed are cora, citeseer, invented")
    folder = (Path(root) if root is not None else data_root()) / _FOLDER
    files = {
        part: downloaded(folder / f"ind.{name}.{part}", f"{_ADDRESS}/ind.{name}.{part}", checksum)
        for part, checksum in _SHA256[name].items()
    }
    return _read(tuple(files.items()))


@cache
def _read(files: tuple[tuple[str, Path], ...]) -> Citations:
    need("experiments", "numpy")
    paths = dict(files)
    held = {part: _unpickled(path) for part, path in paths.items() if part != "test.index"}
    order = torch.tensor([int(line) for line in paths["test.index"].read_text(encoding="ascii").split()])
    # The test papers are in the order of that file; those it leaves out have neither words nor a class.
    rows = torch.cat([torch.arange(held["allx"].shape[0]), order])
    papers = int(rows.max()) + 1
    places, values = [], []
    for start, part in ((0, held["allx"]), (held["allx"].shape[0], held["tx"])):
        of_row = torch.repeat_interleave(torch.as_tensor(part.indptr).diff().long())
        places.append(torch.stack([rows[start + of_row], torch.as_tensor(part.indices).long()]))
        values.append(torch.as_tensor(part.data).float())
    classes = torch.cat([torch.as_tensor(held[part]) for part in ("ally", "ty")])
    targets = torch.full((papers,), -1)
    targets[rows] = torch.where(classes.sum(1) > 0, classes.argmax(1), -1)
    edges = _both_ways([(paper, other) for paper, cited in held["graph"].items() for other in cited])
    nobody = torch.arange(0)
    words = _shares(torch.cat(places, 1), torch.cat(values), papers)
    return Citations(words, held["allx"].shape[1], edges, targets, classes.shape[1], nobody, nobody, order)


class _Sparse:
    """What a pickled matrix of SciPy holds, without SciPy: its version then had other names."""

    data: Any
    indices: Any
    indptr: Any
    _shape: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape


class _Harmless(pickle.Unpickler):
    """Makes arrays, lists and dictionaries."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle asks for, if it is one of a few things."""
        import numpy

        allowed: Mapping[tuple[str, str], Any] = {
            ("numpy.core.multiarray", "_reconstruct"): numpy.empty(0).__reduce__()[0],
            ("numpy", "ndarray"): numpy.ndarray,
            ("numpy", "dtype"): numpy.dtype,
            ("scipy.sparse.csr", "csr_matrix"): _Sparse,
            ("collections", "defaultdict"): defaultdict,
            ("__builtin__", "list"): list,
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return allowed[module, name]


def _unpickled(path: Path) -> Any:
    try:
        return _Harmless(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path} is not read: {error}") from error


def _both_ways(pairs: list[tuple[int, int]]) -> Tensor:
    edges = torch.tensor(pairs).T
    edges = edges[:, edges[0] != edges[1]]
    distinct: Tensor = torch.unique(torch.cat([edges, edges.flip(0)], 1), dim=1)
    return distinct


def _shares(places: Tensor, values: Tensor, papers: int) -> Rows:
    """Each row divided by its sum."""
    sums = torch.zeros(papers).index_add_(0, places[0], values)
    return Rows(places, values / sums[places[0]], papers)


def invented(papers: int = 120, classes: int = 3) -> Citations:
    """Return a graph, always the same, in which papers of one class cite each other and share words, for tests.

    Parameters
    ----------
    papers : int
        How many; a quarter of them test.
    classes : int
        How many.

    Returns
    -------
    Citations
        With forty words for each class.
    """
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(papers) % classes
    alike = targets[:, None] == targets
    cites = torch.rand(papers, papers, generator=generator) < torch.where(alike, 0.08, 0.01)
    uses = targets[:, None] == torch.arange(40 * classes) // 40
    words = torch.rand(papers, 40 * classes, generator=generator) < torch.where(uses, 0.2, 0.1)
    pairs = [(int(a), int(b)) for a, b in cites.nonzero()]
    nobody, test = torch.arange(0), torch.arange(papers - papers // 4, papers)
    places = words.nonzero().T
    shares = _shares(places, torch.ones(places.shape[1]), papers)
    return Citations(shares, words.shape[1], _both_ways(pairs), targets, classes, nobody, nobody, test)


def with_split(citations: Citations, each: int, validation: int, seed: int) -> Citations:
    """Return a graph with papers to train and to validate with, drawn from those that do not test.

    Parameters
    ----------
    citations : Citations
        The graph.
    each : int
        How many papers of each class train.
    validation : int
        How many others validate.
    seed : int
        Of the draw.

    Returns
    -------
    Citations
        The same test part, whatever the seed.

    Examples
    --------
    >>> split = with_split(invented(), each=5, validation=20, seed=0)
    >>> len(split.train), len(split.validation), split.targets[split.train].bincount().tolist()
    (15, 20, [5, 5, 5])
    """
    known = citations.targets >= 0
    known[citations.test] = False
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))
    order = order[known[order]]
    of_class = [order[citations.targets[order] == label][:each] for label in range(citations.num_classes)]
    train = torch.cat(of_class)
    rest = order[~torch.isin(order, train)]
    return replace(citations, train=train, validation=rest[:validation])
