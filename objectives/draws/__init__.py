"""Random numbers for objectives, keyed by row."""
