"""Data of a run: sources, mixtures, order, curriculum, collation, prefetching."""
