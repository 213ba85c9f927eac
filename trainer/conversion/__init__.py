"""Conversion of models from and to Hugging Face, one file per model family, and farspan's model folders."""
