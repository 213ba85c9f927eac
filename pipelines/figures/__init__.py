"""Style of all figures, and the functions that several of them share."""
