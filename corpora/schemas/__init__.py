"""The rows of each artefact: documents, sequences, vectors, and a corpus opened for reading."""
