"""A network as ONNX, and what ONNX Runtime computes with it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn


def in_onnx_runtime(model: nn.Module, *inputs: Tensor, dynamic_shapes: Any = None, runs: Any = None) -> list[Tensor]:
    """Export a network and run it.

    Parameters
    ----------
    model
        In evaluation mode.
    inputs
        What it is exported with.
    dynamic_shapes
        As ``torch.onnx.export`` takes them.
    runs
        What it is run on, if that is something else.

    Returns
    -------
    list of Tensor
        All tensors of its result.
    """
    import onnxruntime

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(model, inputs, dynamo=True, verbose=False, dynamic_shapes=dynamic_shapes)
    assert program is not None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    # not more than the network says: what is rounded may be rounded otherwise
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = dict(zip((x.name for x in session.get_inputs()), runs or inputs, strict=True))
    out = session.run(None, {name: x.detach().numpy() for name, x in given.items()})
    return [torch.from_numpy(x) for x in out]
