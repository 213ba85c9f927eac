from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.assembly import assemble_cuts
from corpora.concatenation import Packing
from corpora.errors import FarspanError
from corpora.mixture import take
from corpora.ragged import Ragged
from corpora.windows import arrange, check_stride, cut_windows
from tests.corpora.test_mixture import keys_of


@given(st.lists(st.integers(1, 70), max_size=20), st.integers(1, 20), st.data())
def test_windows_cover_every_token_at_their_stride(sizes, window, data):
    stride = data.draw(st.integers(0, window))
    documents, offsets, pieces = cut_windows(np.array(sizes, np.int64), window, stride)
    for document, size in enumerate(sizes):
        own = documents == document
        assert (np.diff(offsets[own]) == (stride or window)).all()
        assert (pieces[own][:-1] == window).all()
        assert 1 <= pieces[own][-1] <= window
        assert offsets[own][-1] + pieces[own][-1] == size
        # no window lies inside of the one before
        assert (np.diff(offsets[own] + pieces[own]) > 0).all()


def test_a_window_that_fits_exactly_leaves_no_rest():
    documents, offsets, sizes = cut_windows(np.array([20, 21, 9]), 10, 0)
    assert documents.tolist() == [0, 0, 1, 1, 1, 2]
    assert offsets.tolist() == [0, 10, 0, 10, 20, 0]
    assert sizes.tolist() == [10, 10, 10, 10, 1, 9]


shards = st.lists(st.tuples(st.integers(1, 90), st.integers(0, 2)), max_size=30)
passes = st.lists(st.fractions(Fraction(1, 100), 3), min_size=3, max_size=3)
packings = st.builds(Packing, st.integers(12, 40), st.integers(0, 2), st.integers(0, 2))


@given(shards, passes, packings, st.booleans(), st.data())
def test_rows_hold_what_is_taken_and_nothing_else(documents, epochs, packing, across, data):
    window = packing.capacity - packing.room_per_document
    stride = data.draw(st.integers(0, window))
    lengths = np.array([length for length, _ in documents], np.int64)
    sources = np.array([source for _, source in documents], np.int64)
    taken = take(lengths, sources, epochs, keys_of(len(documents)))
    cuts = arrange(taken, sources, packing, stride, across)

    seen = {}  # (pass, document) -> how often each of its tokens lies in a row
    for document, offset, size, number in zip(cuts.documents, cuts.offsets, cuts.sizes, cuts.uses, strict=True):
        assert size > 0
        tokens = seen.setdefault((number, document), np.zeros(lengths[document], np.int64))
        tokens[offset : offset + size] += 1
    wanted = {}
    pieces = cut_windows(taken.sizes, window, stride)
    for which, offset, size in zip(*pieces, strict=True):
        name = (taken.passes[which], taken.documents[which])
        wanted.setdefault(name, np.zeros(lengths[name[1]], np.int64))[offset : offset + size] += 1
    assert seen.keys() == wanted.keys()
    assert all(np.array_equal(seen[name], wanted[name]) for name in seen)
    for (number, document), times in wanted.items():  # what is taken is a beginning, without a gap
        taken_size = taken.sizes[(taken.passes == number) & (taken.documents == document)][0]
        assert (times[:taken_size] > 0).all()
        assert not times[taken_size:].any()

    assert (np.diff(cuts.row_offsets) > 0).all()
    for first, last in zip(cuts.row_offsets[:-1], cuts.row_offsets[1:], strict=True):
        row = slice(first, last)
        assert cuts.sizes[row].sum() + (last - first) * packing.room_per_document <= packing.capacity
        assert len(set(cuts.uses[row])) == 1
        if not across:
            assert len(set(sources[cuts.documents[row]])) == 1
        if not stride:
            assert len(set(cuts.documents[row])) == last - first


@given(shards, passes, packings)
def test_rows_are_full_but_for_the_last_of_each_source_and_pass(documents, epochs, packing):
    lengths = np.array([length for length, _ in documents], np.int64)
    sources = np.array([source for _, source in documents], np.int64)
    taken = take(lengths, sources, epochs, keys_of(len(documents)))
    for across in (False, True):
        cuts = arrange(taken, sources, packing, across=across)
        tokens = np.add.reduceat(cuts.sizes, cuts.row_offsets[:-1]) if len(cuts.sizes) else np.empty(0)
        parts = np.diff(cuts.row_offsets)
        open_rows = tokens + (parts + 1) * packing.room_per_document < packing.capacity
        groups = {
            (number, not across and sources[document])
            for number, document in zip(taken.passes, taken.documents, strict=True)
        }
        assert open_rows.sum() <= len(groups)


def test_a_row_of_several_passes_has_an_id_of_its_own_in_each():
    lengths, sources = np.array([30, 5]), np.zeros(2, np.int64)
    taken = take(lengths, sources, [Fraction(3)], keys_of(2))
    cuts = arrange(taken, sources, Packing(12, 2, 0), 0)
    tokens = Ragged.from_lengths(np.arange(35, dtype=np.uint16), lengths)
    rows = assemble_cuts(pa.array(["a", "b"]), tokens, Ragged.from_rows([[0, 7], [0]], np.int32), cuts)
    assert len(rows) == 12
    assert len({rows.sequence_id(row) for row in range(len(rows))}) == 12
    order = np.arange(len(rows))[::-1]
    turned = assemble_cuts(pa.array(["a", "b"]), tokens, Ragged.from_rows([[0, 7], [0]], np.int32), cuts.take(order))
    assert [turned.sequence_id(row) for row in order] == [rows.sequence_id(row) for row in range(len(rows))]


def test_a_stride_that_would_leave_gaps_is_refused():
    check_stride(Packing(16), 13)
    for stride in (-1, 14):
        with pytest.raises(FarspanError, match=rf"stride {stride}: give 0 \(no overlap\) or up to 13"):
            check_stride(Packing(16), stride)
