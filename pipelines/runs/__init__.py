"""Inspection of training runs: lists, curves, and the rows of an update."""
