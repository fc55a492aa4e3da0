"""APA and AGLU: the adaptive parametric activation, and the adaptive gated linear unit."""
