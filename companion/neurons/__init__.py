"""What a neuron declares of itself, so that it can enter somebody's network, and neurons to compare with."""

from companion.neurons.declaration import Holding, Neuron, Replacing, Widening, declared, of_module, preceding, units_of

__all__ = ["Holding", "Neuron", "Replacing", "Widening", "declared", "of_module", "preceding", "units_of"]
