"""APA and AGLU: the adaptive parametric activation, and the adaptive generalised linear unit."""
