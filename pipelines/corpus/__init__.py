"""``farspan corpus``: build sequences from documents; one file per kind of corpus."""
