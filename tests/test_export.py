"""Every layer as torch.export writes it down for another program: for any batch, in torch's own operators.

The export to ONNX begins with this, and it knows no operator of ours. ONNX Runtime then computes what the layer does;
whole networks go there in `make zoo`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

import companion
from tests.cases import of_rooms, together
from tests.runtime import in_onnx_runtime

EXPORTED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    **of_rooms("EXPORTED"),
    "GDN": (lambda: companion.GDN(4, dim=1), (3, 4, 6, 5)),
}


@pytest.mark.usefixtures("fresh_compiler")
@together("case", EXPORTED)
def test_it_is_exported_for_any_batch_and_decomposed_into_torchs_own_operators(case: str) -> None:
    make, shape = EXPORTED[case]
    layer = make().eval()
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, 0.1, 0.9)
    program = torch.export.export(layer, (torch.randn(shape),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    plain = program.run_decompositions(torch.export.default_decompositions())
    x = torch.randn(shape[0] + 4, *shape[1:])
    for exported in (program, plain):
        torch.testing.assert_close(exported.module()(x), layer(x), rtol=1e-5, atol=1e-5)
        assert not [node.target for node in exported.graph.nodes if "companion" in str(node.target)]


class SideBySide(nn.Module):
    """All layers, each with its own input and output: they are exported in one go."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(x) for layer, x in zip(self.layers, given, strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_onnx_runtime_computes_what_the_layers_do_for_any_batch() -> None:
    layers = [make().eval() for make, _ in EXPORTED.values()]
    shapes = [shape for _, shape in EXPORTED.values()]
    for parameter in nn.ModuleList(layers).parameters():
        nn.init.uniform_(parameter, 0.1, 0.9)
    batches = tuple({0: torch.export.Dim(f"batch_{index}")} for index in range(len(shapes)))
    xs = [torch.randn(shape[0] + 4, *shape[1:]) for shape in shapes]
    found = in_onnx_runtime(SideBySide(layers), *map(torch.randn, shapes), dynamic_shapes=(batches,), runs=xs)
    expected = [layer(x) for layer, x in zip(layers, xs, strict=True)]
    far = {
        name: ((one - other).abs().max() / other.abs().max()).item()
        for name, one, other in zip(EXPORTED, found, expected, strict=True)
    }
    assert {name: error for name, error in far.items() if not error < 2e-6} == {}
