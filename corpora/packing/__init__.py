"""Documents to corpus rows without neighbours: concatenation, windows, mixtures, related documents."""
