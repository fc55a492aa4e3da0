"""What is trusted or not as a whole: an operator, and the kernels that it launches."""

from __future__ import annotations

from collections.abc import Sequence

from companion.cuda.launch import Kernels

_operators: dict[str, Operator] = {}


class Operator:
    """What is trusted or not as a whole.

    Parameters
    ----------
    name : str
        Of the public function.
    kernels : sequence of Kernels
        All that it launches.
    exercise : str
        "module:function". The function takes a device and yields
        :class:`~companion.proofs.trial.Comparison`; it launches every kernel.
    """

    def __init__(self, name: str, kernels: Sequence[Kernels], exercise: str) -> None:
        self.name = name
        self.kernels = tuple(kernels)
        self.exercise = exercise
        _operators[name] = self

    def names(self, arch: int) -> set[str]:
        """The kernels that are launched on a compute capability."""
        return {name for kernels in self.kernels if kernels.lowest <= arch for name in kernels.names}


def operators() -> list[Operator]:
    """All that prove themselves, by name."""
    return [_operators[name] for name in sorted(_operators)]
