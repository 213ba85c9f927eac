"""Copies of remote artefacts on local disk: whole artefacts for training, single shards in a bounded cache."""
