"""``farspan embed``, ``cluster`` and ``neighbours``: documents to vectors to neighbours."""
