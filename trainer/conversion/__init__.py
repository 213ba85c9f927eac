"""Models of other makes in and out: one file a family of Hugging Face, and the folders that models live in."""
