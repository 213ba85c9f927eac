"""Units of training, one file per kind: model, batches, loss and metrics."""
