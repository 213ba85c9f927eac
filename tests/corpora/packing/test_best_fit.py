"""Best-fit decreasing and rows of powers of two, against restatements that search all rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.packing.best_fit import best_fit_parts
from corpora.packing.options import Packing
from corpora.packing.windows import Taken, Windows, arrange

lengths = st.lists(st.integers(1, 200), max_size=40)
sizes = st.builds(
    Packing,
    sequence_length=st.integers(12, 150),
    room_per_sequence=st.integers(0, 3),
    room_per_document=st.integers(0, 2),
    packing=st.just("best-fit"),
)


def rows_of(cuts):
    """Rows as lists of (document, offset, size)."""
    parts = list(zip(cuts.documents.tolist(), cuts.offsets.tolist(), cuts.sizes.tolist(), strict=True))
    edges = cuts.row_offsets.tolist()
    return [parts[first:last] for first, last in itertools.pairwise(edges)]


def packed(lengths, packing):
    return rows_of(
        arrange(Taken.all(np.array(lengths, np.int64)), np.zeros(len(lengths), int), packing, Windows.of(packing))
    )


def search_all_rows(lengths, capacity, reserved):
    """Best-fit decreasing in quadratic time: the row of each piece, rows numbered as they are opened."""
    free, filled, row_of = [], [], {}
    for time, piece in enumerate(sorted(range(len(lengths)), key=lambda piece: (-lengths[piece], piece))):
        need = lengths[piece] + reserved
        fitting = [row for row in range(len(free)) if free[row] >= need]
        row = min(fitting, key=lambda row: (free[row], -filled[row]), default=len(free))
        if row == len(free):
            free.append(capacity)
            filled.append(time)
        free[row] -= need
        filled[row] = time
        row_of[piece] = row
    return [row_of[piece] for piece in range(len(lengths))]


@given(st.integers(3, 5000), st.integers(0, 2), st.data())
def test_each_piece_is_in_the_row_that_a_search_of_all_rows_finds(capacity, reserved, data):
    pieces = data.draw(st.lists(st.integers(1, capacity - reserved), max_size=60))
    row, piece, offset, size = best_fit_parts(np.array(pieces, np.int64), capacity, reserved)
    assert not offset.any()
    assert size.tolist() == [pieces[number] for number in piece]
    assert dict(zip(piece.tolist(), row.tolist(), strict=True)) == dict(
        enumerate(search_all_rows(pieces, capacity, reserved))
    )
    order = list(zip(row.tolist(), piece.tolist(), strict=True))
    assert order == sorted(order)


def test_many_pieces_in_wide_rows():
    """All levels of the tree over free positions are in use."""
    rng = np.random.default_rng(0)
    pieces = np.append(rng.integers(1, 65_533, 300), rng.integers(1, 300, 1500))
    row, piece = best_fit_parts(pieces, 65_534, 1)[:2]
    expected = search_all_rows(pieces.tolist(), 65_534, 1)
    assert dict(zip(piece.tolist(), row.tolist(), strict=True)) == dict(enumerate(expected))


@given(lengths, sizes)
def test_rows_hold_all_tokens_once_and_cut_only_what_is_longer_than_a_row(lengths, packing):
    rows = packed(lengths, packing)
    held = [np.zeros(length, int) for length in lengths]
    for row in rows:
        assert row
        assert sum(size + packing.room_per_document for *_, size in row) <= packing.capacity
        for document, offset, size in row:
            assert size == min(lengths[document] - offset, packing.room)
            assert offset % packing.room == 0
            held[document][offset : offset + size] += 1
    assert all((times == 1).all() for times in held)


@given(lengths, sizes)
def test_no_two_rows_fit_into_one(lengths, packing):
    used = sorted(sum(size + packing.room_per_document for *_, size in row) for row in packed(lengths, packing))
    assert len(used) < 2 or used[0] + used[1] > packing.capacity


@given(lengths, st.integers(0, 3), st.integers(1, 20))
def test_powers_of_two_hold_one_document_each_and_lose_only_short_ends(lengths, reserved, least):
    packing = Packing(
        sequence_length=64, room_per_sequence=reserved, min_document_tokens=least, packing="powers-of-two"
    )
    smallest = packing.power_sizes[-1]
    lengths = [length for length in lengths if packing.keeps(np.array([length]))[0]]
    ends = [0] * len(lengths)
    for row in sorted(packed(lengths, packing), key=lambda row: row[0]):
        ((document, offset, size),) = row
        positions = size + packing.room_per_sequence + packing.room_per_document
        assert positions & (positions - 1) == 0
        assert positions <= 64
        assert offset == ends[document]
        ends[document] += size
    for length, end in zip(lengths, ends, strict=True):
        assert 0 <= length - end < smallest
        assert end > 0


def test_a_document_of_powers_of_two_without_reserved_positions_is_its_binary_number():
    packing = Packing(sequence_length=64, room_per_sequence=0, room_per_document=0, packing="powers-of-two")
    rows = packed([0b1011011, 64], packing)
    assert sorted(size for row in rows for document, _, size in row if document == 0) == [1, 2, 8, 16, 64]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"packing": "best-fit", "drop_ragged_tail": True}, "drop_ragged_tail has no effect with packing 'best-fit'"),
        ({"packing": "powers-of-two"}, "sequence_length 100: .* power of two, such as 64"),
        (
            {"packing": "whole-documents", "min_document_tokens": 98},
            "98 .* leaves out everything: .* room for 97 tokens",
        ),
    ],
)
def test_options_that_exclude_each_other_are_refused_with_the_numbers(options, message):
    with pytest.raises(FarspanError, match=message):
        Packing(sequence_length=100, **options)
