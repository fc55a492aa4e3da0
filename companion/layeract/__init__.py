"""LayerAct: activations whose gate sees the normalised layer."""
