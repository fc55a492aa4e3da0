"""These neurons in somebody else's network: activations replaced, and put back."""

from companion.surgery.replacements import replace_activations, restore_activations

__all__ = ["replace_activations", "restore_activations"]
