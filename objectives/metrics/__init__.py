"""Metrics of predictions against references, each in the flavour of a published number."""
