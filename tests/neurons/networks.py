"""One small network in which every neuron finds a place."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import companion

__all__ = ["CLASSES", "SmallNet", "WithLoss", "batch"]

CLASSES = 3


class SmallNet(nn.Module):
    """Convolutions with normalisation and pooling, an activation that is a function, a gate, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.pool = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2)
        self.act, self.second = nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)
        self.excite, self.gate = nn.Linear(4, 4), nn.Sigmoid()
        self.hidden, self.dense_act, self.head = nn.Linear(4, 6), nn.GELU(), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images (N, 2, H, W)."""
        x = self.pool(self.act(self.norm(self.conv(x))))
        x = F.relu(self.second(x))
        x = x * self.gate(self.excite(x.mean((2, 3))))[:, :, None, None]
        result: Tensor = self.head(self.dense_act(self.hidden(x.mean((2, 3)))))
        return result


class WithLoss(nn.Module):
    """A network and all of its loss, as one function of parameters and buffers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.cross_entropy(self.model(x), target) + companion.extra_loss(self.model, target)


def batch() -> tuple[Tensor, Tensor]:
    """Four images in float64 and their classes."""
    return torch.randn(4, 2, 4, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
