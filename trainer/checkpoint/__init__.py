"""Checkpoints: state, files, the run lock, and trained models."""
