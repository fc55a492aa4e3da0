"""Recipes fit on a screen, and what stands beside their cells runs as well."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import nbformat
import pytest
import torch
from torch import nn

import companion
from book._tools import form
from book._tools.places import BOOK
from tests.runtime import in_onnx_runtime

CELLS = nbformat.read(BOOK / "appendix" / "recipes.ipynb", as_version=4).cells
#: A code line is as high as ten words are long; a screen holds some forty lines of code or text.
SCREEN, WORDS_A_LINE, WIDTH = 40, 10, 100


def recipes() -> dict[str, list[nbformat.NotebookNode]]:
    """The cells of each recipe by its title."""
    found: dict[str, list[nbformat.NotebookNode]] = {}
    for cell in CELLS:
        if cell.cell_type == "markdown" and (title := re.search(r"^## (.+)$", cell.source, re.MULTILINE)):
            found[title[1]] = []
        if found:
            found[next(reversed(found))].append(cell)
    return found


def block(word: str) -> str:
    """The one piece of code in the text that has this word."""
    texts = "\n".join(cell.source for cell in CELLS if cell.cell_type == "markdown")
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", texts, re.DOTALL) if word in code]
    return str(code)


def lines(cell: nbformat.NotebookNode) -> int:
    """About how high a cell stands on the page."""
    if cell.cell_type == "code":
        return 0 if "hide-input" in cell.metadata.get("tags", []) else len(cell.source.splitlines())
    code = "".join(re.findall(r"```python\n(.*?)```", cell.source, re.DOTALL))
    return len(code.splitlines()) + form.words(cell.source) // WORDS_A_LINE


def test_there_are_eight_and_the_page_opens_with_links_to_them_in_their_order() -> None:
    linked = re.findall(r"^\d\. \[(.+?)\]\(#(recipe-\w+)\)$", CELLS[0].source, re.MULTILINE)
    assert len(linked) == 8
    titles = [
        title[::-1]
        for cell in CELLS[1:]
        for title in re.findall(r"^\((recipe-\w+)\)=\n## \d\. (.+)$", cell.source, re.MULTILINE)
    ]
    assert titles == linked


@pytest.mark.parametrize("title", recipes())
def test_a_recipe_is_a_screen_and_has_code_that_is_run(title: str) -> None:
    cells = recipes()[title]
    assert sum(map(lines, cells)) <= SCREEN
    assert any(cell.cell_type == "code" and cell.outputs for cell in cells)
    code = [line for cell in cells if cell.cell_type == "code" for line in cell.source.splitlines()]
    assert max(map(len, code)) <= WIDTH


def test_yolos_trainer_gives_the_network_that_was_rethought(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for Ultralytics that calls what Ultralytics calls."""

    class DetectionTrainer:
        def get_model(self, cfg: str | None = None, weights: object = None, verbose: bool = True) -> nn.Module:
            return nn.Sequential(nn.Conv2d(3, 4, 3, 64), nn.SiLU())

    class YOLO:
        def __init__(self, name: str) -> None:
            self.yaml = name

        def train(self, data: str, trainer: type[DetectionTrainer]) -> None:
            trained.append(trainer().get_model(weights=None, cfg=self.yaml))

    trained: list[nn.Module] = []
    for name in ("ultralytics", "ultralytics.models", "ultralytics.models.yolo", "ultralytics.models.yolo.detect"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["ultralytics"], "YOLO", YOLO, raising=False)
    monkeypatch.setattr(sys.modules[name], "DetectionTrainer", DetectionTrainer, raising=False)
    exec(block("ultralytics"), {})
    assert [type(module) for module in trained[0]] == [nn.Conv2d, companion.AGLU]


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_onnx_runtime_computes_what_the_exported_network_does() -> None:
    """The page's line, but for the file's name and with a smaller network."""
    resnet = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    network = companion.rethink(resnet, "aglu", example=(3, 8, 8)).eval()
    batch, images, more = {0: torch.export.Dim("batch")}, torch.randn(4, 3, 8, 8), torch.randn(6, 3, 8, 8)
    assert block("torch.onnx").split('"network.onnx", ')[1].strip() == "dynamo=True, dynamic_shapes=(batch,))"
    (found,) = in_onnx_runtime(network, images, dynamic_shapes=(batch,), runs=[more])
    torch.testing.assert_close(found, network(more), rtol=1e-4, atol=1e-4)
