"""Rows and texts in pieces: together they are the text, and each has the treatment of its span."""

from __future__ import annotations

import numpy as np
import pytest

from corpora.schemas.corpus import Corpus
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE
from objectives.api.protocol import CorpusFacts, load_objective, mask_key
from pipelines.pages.blocks import bounds, string_block
from pipelines.pages.piece import plain_pieces, token_pieces
from pipelines.pages.row import parts_of, reasons_of, seen_pieces, sides_of, span_pieces, treatment
from tests.artefacts import make_corpus, small_tokenizer


@pytest.fixture(scope="module")
def row(tmp_path_factory):
    """A row, its masks under T5's span corruption, its rendering and the names of its special tokens."""
    corpus = Corpus(make_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus"), words=300))
    objective = load_objective("span", "t5")
    special = objective.validate(CorpusFacts.of(corpus.manifest))
    batch = corpus.take(np.array([3]))
    masks = objective.mask(batch, mask_key(0, objective))
    return batch, masks, objective.render(batch, masks, special), special.ids


def test_pieces_are_the_text_of_the_parts(row):
    batch, masks, *_ = row
    tokenizer = small_tokenizer()
    parts = parts_of(batch)
    assert len(parts) > 1
    whole = "".join(tokenizer.decode(batch.tokens[0][part.start : part.stop]) for part in parts)
    pieces = [piece for part in parts for piece in span_pieces(tokenizer, batch, masks, part.start, part.stop)]
    assert "".join(piece.text for piece in pieces) == whole
    assert sum(piece.tokens for piece in pieces) == len(batch.tokens[0])
    hidden = [(piece.start, piece.tokens) for piece in pieces if piece.kind == "hidden"]
    assert hidden == list(zip(masks.span_starts[0].tolist(), masks.span_lengths[0].tolist(), strict=True))


@pytest.mark.parametrize("inside", [0, 1, 2])
def test_a_range_cuts_spans_at_its_edges(row, inside):
    batch, masks, *_ = row
    tokenizer = small_tokenizer()
    start, stop = int(masks.span_starts[0][1]), parts_of(batch)[0].stop
    pieces = span_pieces(tokenizer, batch, masks, start + inside, stop)
    whole = span_pieces(tokenizer, batch, masks, 0, stop)
    size = int(masks.span_lengths[0][1])
    after = start + max(size, inside)
    assert [piece for piece in pieces if piece.start >= after] == [piece for piece in whole if piece.start >= after]
    assert (pieces[0].span, pieces[0].tokens) == ((1, size - inside) if inside < size else (-1, pieces[0].tokens))
    assert sum(piece.tokens for piece in pieces) == stop - start - inside


def test_flags_have_the_meaning_that_the_legend_says():
    assert [treatment(flag) for flag in (0, IN_SOURCE, VISIBLE | IN_TARGET, REPLACED | IN_TARGET)] == [
        "candidate",
        "hidden",
        "shown",
        "replaced",
    ]
    assert treatment(IN_TARGET) == "hidden"


def test_objectives_without_ranks_scores_and_labels_give_no_reason(row):
    assert reasons_of(row[1]) == []


def test_source_and_target_have_every_position_once(row):
    _, masks, examples, special = row
    source, target = sides_of(examples)
    assert (len(source.ids), len(target.ids)) == (masks.source_lengths[0], masks.target_lengths[0])
    pieces = seen_pieces(source.ids, small_tokenizer(), special, source.marked)
    assert [piece.start for piece in pieces] == np.cumsum([0, *(piece.tokens for piece in pieces)])[:-1].tolist()
    names = [piece.text for piece in pieces if piece.kind == "special"]
    assert names == [f"<sentinel-{number}>" for number in range(len(masks.span_starts[0]))] + ["<eos>"]


def test_characters_of_several_tokens_are_whole(row):
    tokenizer = small_tokenizer()
    tokens = tokenizer.encode(["fox ☃ jumps"])[0]
    (piece,) = plain_pieces(tokenizer, tokens, 0, len(tokens))
    assert piece.text == "fox ☃ jumps"
    singles = token_pieces(tokenizer, tokens, [piece])
    assert len(singles) == len(tokens)
    assert "".join(single.text for single in singles) == "fox ☃ jumps"
    assert plain_pieces(tokenizer, tokens, 2, 2) == []


@pytest.mark.parametrize(
    ("start", "size", "expected"), [(0, 4, (0, 4)), (8, 4, (8, 10)), (-3, 4, (0, 4)), (99, 4, (10, 10)), (0, 0, (0, 0))]
)
def test_ranges_stay_inside(start, size, expected):
    assert bounds(start, 10, size) == expected


def test_a_string_is_cut():
    block = string_block("reference-0", "reference", "0123456789", 6, 100)
    assert [(piece.text, piece.start) for piece in block.pieces] == [("6789", 6)]
    assert (block.start, block.stop, block.total, block.unit) == (6, 10, 10, "characters")
