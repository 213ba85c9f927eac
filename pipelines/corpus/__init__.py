"""``farspan corpus``: sequences built from documents, one file per kind of corpus."""
