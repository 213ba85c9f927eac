"""Stored masks and those drawn for looking are the same."""

from __future__ import annotations

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from objectives.api.mask_set import MaskSet
from pipelines.pages.maskers import Masker, describe_options, hidden_shares


@pytest.mark.parametrize("draw", [0, 1])
def test_an_objective_draws_what_is_stored(made, draw):
    corpus, rows = Corpus(made["corpus"]), np.array([4, 9])
    stored, drawn = Masker.from_mask_set("spans", MaskSet(made["spans"])), Masker.from_objective(corpus, "t5")
    assert (drawn.objective.name, stored.draws, drawn.draws) == ("span", 2, 1)
    batch = corpus.take(rows)
    ours, theirs = drawn.masks(batch, rows, draw), stored.masks(batch, rows, draw)
    assert ours.span_starts.values.tolist() == theirs.span_starts.values.tolist()
    assert describe_options(drawn.objective) == describe_options(stored.objective)
    assert "density=0.15" in describe_options(drawn.objective)
    shares = hidden_shares(theirs, batch.tokens.lengths)
    assert shares.tolist() == [
        100 * theirs.span_lengths[row].sum() / len(batch.tokens[row]) for row in range(len(batch))
    ]


def test_an_unknown_objective_is_refused(made):
    with pytest.raises(FarspanError, match="is called 'spam'"):
        Masker.from_objective(Corpus(made["corpus"]), "spam")
