"""Memory of a training step, by formula."""
