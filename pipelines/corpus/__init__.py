"""``farspan corpus``: documents to sequences, a file per kind of corpus."""
