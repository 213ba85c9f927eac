"""Training data: sources, mixtures, order, curriculum, collation, prefetching."""
