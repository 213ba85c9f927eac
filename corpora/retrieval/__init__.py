"""Neighbours from vectors: k-means, and nearest-neighbour search within a cluster."""
