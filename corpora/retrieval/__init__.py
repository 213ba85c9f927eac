"""Vectors to neighbours: k-means and exact nearest-neighbour search inside a cluster."""
