"""These neurons in somebody else's network: activations replaced; a network as a graph, for rules that move them."""

from companion.surgery.replacements import replace_activations, restore_activations

__all__ = ["replace_activations", "restore_activations"]
