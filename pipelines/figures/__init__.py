"""The style of all figures, and what several of them share."""
