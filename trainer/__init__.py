"""Model, data loading and the training loop."""
