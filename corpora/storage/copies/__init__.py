"""Copies of remote artefacts on local disk: whole ones for training, single shards in a bounded cache."""
