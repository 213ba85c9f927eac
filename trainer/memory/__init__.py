"""Memory of a training step, estimated."""
