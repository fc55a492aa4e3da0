"""Multi-argument neurons: one small shared network as an activation of several arguments (Kim et al. 2022)."""
