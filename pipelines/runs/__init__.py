"""What a training run has done: its curves, and the rows that an update saw."""
