"""Pieces of a text."""

from __future__ import annotations

from pipelines.pages.piece import plain_pieces, token_pieces
from tests.artefacts import small_tokenizer


def test_characters_of_several_tokens_are_whole(row):
    tokenizer = small_tokenizer()
    tokens = tokenizer.encode(["fox ☃ jumps"])[0]
    (piece,) = plain_pieces(tokenizer, tokens, 0, len(tokens))
    assert piece.text == "fox ☃ jumps"
    singles = token_pieces(tokenizer, tokens, [piece])
    assert len(singles) == len(tokens)
    assert "".join(single.text for single in singles) == "fox ☃ jumps"
    assert plain_pieces(tokenizer, tokens, 2, 2) == []
