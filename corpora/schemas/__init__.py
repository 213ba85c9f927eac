"""Rows of the artefacts, one module each: columns, their meaning, and rows as typed arrays.

The rows of a corpus are those of ``sequences``; ``corpus`` opens a folder of them.
"""
