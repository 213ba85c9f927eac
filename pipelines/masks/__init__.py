"""``farspan mask``: mask sets, which state what an objective hides in the rows of a corpus."""
