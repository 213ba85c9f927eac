"""Probabilities of treatments at their boundaries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, MaskBatch
from objectives.sentences.spans import choose_treatments, within_target


@pytest.mark.parametrize(
    ("chances", "lowest", "highest"),
    [
        ([0.7, 0.1, 0.1, 0.1], 0, 3),  # adds up to a little less than 1
        ([0.9, 0.0, 0.1, 0.0], 0, 2),
        ([0.0, 1.0, 0.0, 0.0], 1, 1),
        ([0.0, 0.3, 0.0, 0.7], 1, 3),
    ],
)
def test_no_draw_leaves_the_treatments_that_have_a_chance(chances, lowest, highest):
    draws = np.zeros((2, 4), np.uint64)
    draws[1] = 2**64 - 1
    assert choose_treatments(draws, chances).tolist() == [lowest, highest]


def ranked(rows: list[list[int]]) -> MaskBatch:
    """Rows of spans with the given lengths, by rank; they stand in the row in the opposite order."""
    lengths = Ragged.from_rows([row[::-1] for row in rows], np.int32)
    starts = Ragged.from_rows([np.cumsum([0, *row[::-1]])[:-1] for row in rows], np.int32)
    flags = [[(IN_SOURCE | IN_TARGET, REPLACED | IN_TARGET)[i % 2] for i in range(len(row))] for row in rows]
    zeros = np.zeros(len(rows), np.int32)
    ids = [
        np.concatenate([[10 * i + j for j in range(n)] for i, n in enumerate(row[::-1]) if i % 2] or [[]])
        for row in rows
    ]
    return MaskBatch(
        np.zeros((len(rows), 16), np.uint8),
        starts,
        lengths,
        Ragged.from_rows(flags, np.uint8),
        zeros,
        zeros,
        span_scores=Ragged.from_rows([[float(n) for n in row[::-1]] for row in rows], np.float32),
        span_ranks=Ragged.from_rows([range(len(row))[::-1] for row in rows], np.int32),
        replacements=Ragged.from_rows(ids, np.int32),
    )


@pytest.mark.parametrize(
    ("lengths", "room", "when_full", "kept"),
    [
        ([5, 4, 2, 1], 8, "skip", [1, 2, 5]),  # 4 no longer fits, what follows does
        ([5, 4, 2, 1], 8, "stop", [5]),
        ([5, 4, 2, 1], 12, "stop", [1, 2, 4, 5]),
        ([9, 2], 8, "skip", [2]),
        ([9, 2], 8, "stop", [8]),  # the first is cut: nothing else may come before it
        ([9, 20], 8, "skip", [8]),  # not one fits
        ([1], 1, "skip", [1]),
        ([], 1, "skip", []),
    ],
)
def test_what_fits_by_hand(lengths, room, when_full, kept):
    masks = within_target(ranked([[3], lengths, []]), room, when_full)
    assert masks.span_lengths[1].tolist() == kept
    assert masks.span_lengths[0].tolist() == [min(3, room)]
    assert masks.span_ranks[1].tolist() == list(range(len(kept)))[::-1]
    assert [len(masks.span_lengths[row]) for row in (0, 2)] == [1, 0]


@given(
    st.lists(st.lists(st.integers(1, 9), max_size=7), max_size=4), st.integers(1, 30), st.sampled_from(["skip", "stop"])
)
def test_columns_stay_together(rows, room, when_full):
    masks = ranked(rows)
    chosen = within_target(masks, room, when_full)
    for row in range(len(rows)):
        whole = {start: i for i, start in enumerate(masks.span_starts[row].tolist())}
        places = [whole[start] for start in chosen.span_starts[row].tolist()]
        taken = chosen.span_lengths[row]
        assert taken.sum() <= room
        assert len(places) > 0 or not rows[row]
        assert (taken == masks.span_lengths[row][places]).all() or (len(taken) == 1 and taken[0] == room)
        assert np.array_equal(chosen.span_flags[row], masks.span_flags[row][places])
        assert np.array_equal(chosen.span_scores[row], masks.span_scores[row][places])
        assert np.array_equal(np.argsort(chosen.span_ranks[row]), np.argsort(masks.span_ranks[row][places]))
        ids = [10 * i + j for i, n in zip(places, taken, strict=True) if i % 2 for j in range(n)]
        assert chosen.replacements[row].tolist() == ids
