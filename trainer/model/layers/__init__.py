"""Sublayers of encoder and decoder layers: attention, feed-forward, norms, embeddings."""
