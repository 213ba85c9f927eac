"""Packing of documents into corpus rows without a neighbour graph: concatenation, windows, mixtures, clusters."""
