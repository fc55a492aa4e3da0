"""Ground: what the chapters that are on no mechanism move and ask."""
