"""Position encodings: absolute, relative and rotary."""
