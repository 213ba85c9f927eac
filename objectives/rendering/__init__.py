"""Masks to sources and targets, and back."""
