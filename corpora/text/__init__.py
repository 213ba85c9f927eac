"""Text before and after tokenisation: sentence boundaries, offsets, preprocessing, word n-grams."""
