"""Checkpoints: state, files, the lock of a run's folder, and trained models."""
