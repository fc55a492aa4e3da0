"""What a neuron declares of itself, so that it can enter somebody's network, and neurons to compare with."""

from companion.neurons.declaration import Neuron, declared, of_module, preceding, replacing, units_of, widening

__all__ = ["Neuron", "declared", "of_module", "preceding", "replacing", "units_of", "widening"]
