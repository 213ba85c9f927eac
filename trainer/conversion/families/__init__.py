"""Hugging Face model families, one file per family: configuration and parameter names in both directions."""
