"""``farspan generate``: texts that a model generates for pairs."""
