"""Rows of artefacts in pieces of text, as `farspan show` and `farspan view` present them."""
