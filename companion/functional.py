"""The public functions. Every one takes tensors of any device and floating dtype."""

from companion.apa.op import aglu, apa

__all__ = ["aglu", "apa"]
