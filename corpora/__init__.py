"""Documents, tokenizers and sequences, and their storage on disk. Imports neither Beam nor torch."""
