"""Who attends to whom in the encoder: one file a pattern."""
