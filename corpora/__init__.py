"""Documents, tokenizers, sequences, and how they lie on disk. Imports neither Beam nor torch."""
