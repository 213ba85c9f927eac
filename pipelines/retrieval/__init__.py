"""``farspan embed``, ``cluster`` and ``neighbours``: vectors and nearest neighbours of documents."""
