"""These neurons in somebody else's network: activations replaced, activations moved into the layers after them."""

from companion.surgery.replacements import ChannelBias, PreActivated, replace_activations
from companion.surgery.rules import to_dac, to_multibias

__all__ = ["ChannelBias", "PreActivated", "replace_activations", "to_dac", "to_multibias"]
