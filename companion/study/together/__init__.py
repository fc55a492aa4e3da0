"""Arenas: one network, one data set, one recipe, every neuron.

Each arena is a module that registers its experiments: ``experiments`` the convolutional one, and those named here.
"""

from companion.study.together import mlp as mlp
