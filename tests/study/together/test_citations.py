import hashlib
import os
import pickle
from collections import defaultdict

import numpy
import pytest
import torch
from scipy import sparse

from companion.study.together import citations
from companion.study.together.citations import Rows, invented, load, with_split

# As Python 2 and the libraries of then called them.
NAMES = {
    b"cscipy.sparse._csr\n": b"cscipy.sparse.csr\n",
    b"cnumpy._core.multiarray\n": b"cnumpy.core.multiarray\n",
    b"cbuiltins\nlist": b"c__builtin__\nlist",
}
# Four papers with known places and two that test, the sixth before the fourth; of the fifth there is nothing.
TRAIN_WORDS = numpy.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 1, 0]], numpy.float32)
TEST_WORDS = numpy.array([[1, 1, 1], [0, 0, 1]], numpy.float32)
GRAPH = defaultdict(list, {0: [1, 1, 6], 1: [0], 2: [2], 3: [], 4: [3], 5: [], 6: [0]})


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A graph in the form of the published files."""
    parts = {
        "allx": sparse.csr_matrix(TRAIN_WORDS),
        "ally": numpy.eye(2, dtype=numpy.int32)[[0, 1, 1, 0]],
        "graph": GRAPH,
        "tx": sparse.csr_matrix(TEST_WORDS),
        "ty": numpy.eye(2, dtype=numpy.int32)[[1, 0]],
    }
    folder = tmp_path / "planetoid" / "data"
    folder.mkdir(parents=True)
    for part, value in parts.items():
        content = pickle.dumps(value, protocol=3)
        for now, then in NAMES.items():
            content = content.replace(now, then)
        (folder / f"ind.cora.{part}").write_bytes(content)
    (folder / "ind.cora.test.index").write_text("6\n4\n")
    trust(folder, monkeypatch)
    return folder


def trust(folder, monkeypatch):
    sums = {
        path.name.removeprefix("ind.cora."): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()
    }
    monkeypatch.setattr(citations, "_SHA256", {"cora": sums})


def test_the_published_files_are_read(files):
    graph = load("cora", files.parents[1])
    assert graph.targets.tolist() == [0, 1, 1, 0, 0, -1, 1]
    assert graph.test.tolist() == [6, 4]
    assert graph.num_classes == 2
    words = torch.tensor([*TRAIN_WORDS.tolist(), TEST_WORDS[1].tolist(), [0.0] * 3, TEST_WORDS[0].tolist()])
    shares = words / words.sum(1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(graph.words(torch.eye(3)), shares)


def test_edges_go_both_ways_once_and_nobody_cites_himself(files):
    edges = load("cora", files.parents[1]).edges
    assert {*map(tuple, edges.T.tolist())} == {(0, 1), (1, 0), (0, 6), (6, 0), (3, 4), (4, 3)}
    assert edges.shape == (2, 6)


def test_a_pickle_that_would_run_something_is_refused(files, monkeypatch):
    class Command:
        def __reduce__(self):
            return os.system, ("true",)

    (files / "ind.cora.graph").write_bytes(pickle.dumps(Command(), protocol=3))
    trust(files, monkeypatch)
    with pytest.raises(ValueError, match=r"ind.cora.graph is not read: it asks for (posix|nt).system"):
        load("cora", files.parents[1])


def test_an_unknown_graph_is_refused():
    with pytest.raises(ValueError, match="name is 'pubmed'; allowed are cora, citeseer, invented"):
        load("pubmed")


def test_rows_multiply_as_their_matrix_does():
    dense = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, -3.0], [0.0, 0.0, 0.0]])
    places = dense.nonzero().T.flip(1)
    table = torch.randn(3, 5, requires_grad=True)
    product = Rows(places, dense[places[0], places[1]], 4)(table)
    torch.testing.assert_close(product, dense @ table)
    product.square().sum().backward()
    torch.testing.assert_close(table.grad, 2 * dense.T @ dense @ table.detach())


def test_a_split_holds_some_of_each_class_and_no_test_paper():
    graph = invented()
    one, again, other = (with_split(graph, 5, 40, seed) for seed in (0, 0, 1))
    assert torch.equal(one.train, again.train)
    assert not torch.equal(one.train, other.train)
    assert torch.equal(one.test, other.test)
    assert graph.targets[one.train].bincount().tolist() == [5, 5, 5]
    papers = torch.cat([one.train, one.validation, one.test])
    assert len(papers.unique()) == len(papers) == 15 + 40 + 30


def test_papers_of_unknown_class_are_in_no_split(files):
    split = with_split(load("cora", files.parents[1]), 1, 10, 0)
    assert sorted([*split.train.tolist(), *split.validation.tolist()]) == [0, 1, 2, 3]
