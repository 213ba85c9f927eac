"""The engine Apache Beam: its embedded runner with worker processes, and any other runner of Beam's."""
