"""Metrics of predictions against references, each computed as for published numbers (its flavour)."""
