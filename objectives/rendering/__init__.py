"""Conversion of masks to sources and targets, and back."""
