"""Arenas: one network, one data set, one recipe, every neuron."""
