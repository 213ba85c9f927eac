"""What to hide in a sequence and how it is shown. Imports neither Beam nor torch."""
