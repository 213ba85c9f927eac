"""Partitioning of documents into the shards of a corpus: spill, merge, pack."""
