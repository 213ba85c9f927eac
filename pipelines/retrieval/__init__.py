"""``farspan embed``, ``cluster`` and ``neighbours``: from documents to vectors to neighbours."""
