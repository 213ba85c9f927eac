"""Candidates become mask rows within budgets, and come back whole from them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpora.storage.ragged import Ragged
from objectives.api.masks import CANDIDATE, IN_SOURCE, IN_TARGET
from objectives.draws.candidate_spans import Candidates, hide_hardest, whole_candidates
from objectives.draws.hardest_spans import rank_spans

HIDDEN = IN_SOURCE | IN_TARGET


def candidates(rows):
    """Spans of the given lengths with a visible token before each; their losses are a permutation."""
    starts = [np.cumsum([0, *sizes[:-1]]) + np.arange(1, len(sizes) + 1) if sizes else [] for sizes in rows]
    losses = [np.random.default_rng(len(sizes)).permutation(len(sizes)) for sizes in rows]
    scores = Ragged.from_rows(losses, np.float32)
    return Candidates(Ragged.from_rows(starts, np.int32), Ragged.from_rows(rows, np.int32), scores, rank_spans(scores))


def hidden(found, tokens):
    count = len(found.starts)
    many = np.full(count, 2**62)
    ids = np.arange(16 * count, dtype=np.uint8).reshape(count, 16)
    return hide_hardest(ids, found, np.full(count, tokens, np.int64), many, many)


def test_a_candidate_that_is_cut_becomes_two_spans_of_one_rank():
    scores = Ragged.from_rows([[1, 2]], np.float32)
    found = Candidates(
        Ragged.from_rows([[3, 9]], np.int32), Ragged.from_rows([[4, 5]], np.int32), scores, rank_spans(scores)
    )
    masks = hidden(found, 7)
    assert masks.span_starts[0].tolist() == [3, 5, 9]
    assert masks.span_lengths[0].tolist() == [2, 2, 5]
    assert masks.span_flags[0].tolist() == [HIDDEN, CANDIDATE, HIDDEN]
    assert masks.span_ranks[0].tolist() == [1, 1, 0]


@given(st.lists(st.lists(st.integers(1, 6), max_size=6), min_size=1, max_size=4), st.integers(0, 30))
def test_all_candidates_come_back_whole(rows, tokens):
    found = candidates(rows)
    masks = hidden(found, tokens)
    for row, sizes in enumerate(rows):
        hides = masks.span_flags[row] == HIDDEN
        assert masks.span_lengths[row][hides].sum() == min(tokens, sum(sizes))
    again = whole_candidates(masks)
    for column, other in zip(found, again, strict=True):
        assert [column[row].tolist() for row in range(len(rows))] == [other[row].tolist() for row in range(len(rows))]
