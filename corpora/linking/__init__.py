"""Corpus rows from linked documents: the neighbour graph, near-duplicates, and the policies that traverse the graph."""
