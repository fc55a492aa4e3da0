"""A tenth of somebody else's networks goes through all that is done to networks here; `make zoo` takes all of them."""

from __future__ import annotations

import pytest
import torch

from companion import AGLU, replace_activations
from tests import zoo


@pytest.mark.parametrize("name", zoo.drawn())
def test_a_network_of_somebody_else_goes_all_the_way(name: str) -> None:
    assert zoo.walked(name) == zoo.table()[name]


def test_the_table_has_every_network_and_no_failure() -> None:
    rows = zoo.table()
    assert [*rows] == [*zoo.NAMES]
    assert not [name for name, row in rows.items() if any(value.startswith("FAILED") for value in row.values())]


def test_a_step_that_fails_is_no_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "restore_activations", lambda model: model)
    monkeypatch.setattr(zoo, "parameter_groups", lambda model, decay: [])
    row = zoo.walked("alexnet", ("replace", "groups", "pickled"))
    assert row["replace"] == "FAILED AssertionError: not restored"
    assert row["groups"].startswith("FAILED AssertionError")
    assert row["pickled"] == "yes"


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_small_050", "vit_tiny_patch16_224"])
def test_a_network_with_other_activations_is_compiled_without_a_break(name: str) -> None:
    model = zoo.made(name)
    x = zoo.example(name, model)
    new = replace_activations(model, {"relu": AGLU, "gelu": AGLU, "hardswish": AGLU})
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(new, fullgraph=True, backend="aot_eager")(x), new(x))
