"""Source and target of a rendered row in pieces."""

from __future__ import annotations

import numpy as np

from pipelines.pieces.sides import seen_pieces, sides_of
from tests.artefacts import small_tokenizer


def test_source_and_target_have_every_position_once(row):
    _, masks, examples, special = row
    source, target = sides_of(examples)
    assert (len(source.ids), len(target.ids)) == (masks.source_lengths[0], masks.target_lengths[0])
    pieces = seen_pieces(source.ids, small_tokenizer(), special, source.marked)
    assert [piece.start for piece in pieces] == np.cumsum([0, *(piece.tokens for piece in pieces)])[:-1].tolist()
    names = [piece.text for piece in pieces if piece.kind == "special"]
    assert names == [f"<sentinel-{number}>" for number in range(len(masks.span_starts[0]))] + ["<eos>"]
