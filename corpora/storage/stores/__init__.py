"""Stores of files: this machine's disk, S3, and others that Arrow or fsspec opens."""
