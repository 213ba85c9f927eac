"""Corpus rows from documents without neighbours: concatenation, windows, mixtures, related documents."""
