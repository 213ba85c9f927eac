"""Apache Beam jobs, and the ``farspan`` command."""
