"""Compiled ROUGE for batches of texts: letters -> words -> n-grams -> scores, one module each."""
