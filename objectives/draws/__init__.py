"""Random choices of objectives, keyed by row."""
