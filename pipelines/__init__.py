"""Apache Beam jobs over terabytes, and the ``farspan`` command."""
