"""Exports read by the owners of their formats, in environments of their own; run with ``-m readers``."""
