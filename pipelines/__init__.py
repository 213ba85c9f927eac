"""Jobs that make artefacts, and the ``farspan`` command."""
