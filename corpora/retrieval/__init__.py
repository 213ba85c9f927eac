"""Retrieval of neighbours by vectors: k-means, and nearest-neighbour search within a cluster."""
