"""Linking of documents into corpus rows: the neighbour graph, near-duplicates, and policies that traverse the graph."""
