"""An operator of one small kernel, y = 3x, that can be given faults: the source is the file that $TOY_SOURCE names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from companion.cuda.launch import Kernels
from companion.proofs.trial import Comparison, inputs
from companion.proofs.verdicts import Operator

KERNELS = Kernels(Path(os.environ.get("TOY_SOURCE", Path(__file__).with_name("scale.cu"))), ["scale"])
OPERATOR = Operator("toy", [KERNELS], "tests.cuda.toy:exercise")


def exercise(device: str) -> Iterator[Comparison]:
    x = inputs(70).to(device)
    y = torch.zeros_like(x)
    KERNELS.launch("scale", (3,), (32,), [x, y, np.int64(70)], x.device, simulated=device == "cpu")
    yield Comparison("toy, float32: the result", y, 3 * x.cpu().double(), torch.full((70,), 1e-5, dtype=torch.float64))
