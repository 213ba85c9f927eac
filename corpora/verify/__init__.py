"""Checks of a finished artefact against its manifest and the contract of its format."""
