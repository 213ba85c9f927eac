"""``farspan view``: artefacts as pages, served to this machine's browser or saved as one file."""
