"""The engine Apache Beam: its embedded runner with worker processes, and Beam's other runners."""
