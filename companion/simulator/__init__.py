"""Run the project's real CUDA kernels without a GPU.

Every CUDA thread becomes a fiber, and blocks are spread over threads of the operating system: barriers,
shuffles, shared memory and atomics are real. The folder ``runtime`` is the C++ side; the top of its
``simulator.h`` says what is modelled, what is stricter than a GPU and what is left out.

It needs g++, and ``pip install "rethinking-the-neuron[simulator]"`` brings the rest, for a torch without CUDA as well.

Chapter: Kernels you can run anywhere.
"""

from companion.simulator.build import available, why_not
from companion.simulator.errors import SimulatorError
from companion.simulator.module import Module, check_orders, load

__all__ = ["Module", "SimulatorError", "available", "check_orders", "load", "why_not"]
