"""Packing of documents into corpus rows without a neighbour graph: concatenation, windows, mixtures, clusters.

``assemble`` fills the columns of the rows of every corpus, also of linked ones.
"""
