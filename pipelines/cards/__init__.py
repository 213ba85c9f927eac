"""The README.md of a finished artefact: a data-set card, derived from its manifest and its first row."""
