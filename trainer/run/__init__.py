"""A training run: startup, the training step, evaluation, signals."""
