"""Attention and feed-forward sublayers that encoder and decoder layers are made of."""
