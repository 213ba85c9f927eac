"""``farspan show``, ``stats``, ``verify`` and ``check-objective``."""
