"""Hugging Face model families, one module each, with the members of ``trainer.conversion.family.Family``."""
