"""Row schemas of the artefacts (documents, sequences, vectors), and readers of corpora."""
