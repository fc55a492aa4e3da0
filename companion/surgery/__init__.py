"""These neurons in somebody else's network: activations replaced, and layers widened for those of several arguments."""

from companion.surgery.replacements import replace_activations, restore_activations
from companion.surgery.units import to_units

__all__ = ["replace_activations", "restore_activations", "to_units"]
