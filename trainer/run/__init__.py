"""A training run: startup, the loop of updates, the training step, evaluation, signals."""
