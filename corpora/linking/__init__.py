"""Neighbours to corpus rows: the graph, its near-duplicates, and the policies that walk it."""
