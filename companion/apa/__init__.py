"""Adaptive parametric activation (APA) and the adaptive gated linear unit (AGLU)."""
