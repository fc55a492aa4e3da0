"""Arenas: one network, one data set, one recipe, every neuron.

The convolutional arena is in ``experiments``. Every other one is a module with an ``EXPERIMENT``, and is named here.
"""

from companion.study.experiments import register
from companion.study.together import conv_tail, cost, gpt, graph, mlp, pairs, sharpness, vit

for arena in (conv_tail, cost, gpt, graph, mlp, pairs, sharpness, vit):
    register(arena.EXPERIMENT)
