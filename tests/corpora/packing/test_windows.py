from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from corpora.packing.assemble import assemble_cuts
from corpora.packing.mixture import mix
from corpora.packing.options import Packing
from corpora.packing.windows import Windows, arrange, take
from corpora.storage.ragged import Ragged
from tests.corpora.packing.test_mixture import mixtures

windows = st.integers(1, 20).flatmap(lambda size: st.builds(Windows, st.just(size), st.integers(1, size)))


@given(st.lists(st.integers(0, 70), max_size=20), windows)
def test_windows_cover_every_token_at_their_stride(sizes, windows):
    documents, offsets, pieces = windows.cut(np.array(sizes, np.int64))
    written = windows.written(np.array(sizes, np.int64))
    for document, size in enumerate(sizes):
        own = documents == document
        assert written[document] == pieces[own].sum()
        if not size:
            assert not own.any()
            continue
        assert (np.diff(offsets[own]) == windows.stride).all()
        assert (pieces[own][:-1] == windows.size).all()
        assert 1 <= pieces[own][-1] <= windows.size
        assert offsets[own][-1] + pieces[own][-1] == size
        # no window lies inside of the one before
        assert (np.diff(offsets[own] + pieces[own]) > 0).all()


@given(st.integers(0, 300), windows)
def test_a_beginning_is_the_longest_whose_windows_hold_no_more(written, windows):
    every = np.arange(302)  # of so many tokens: no window writes less than it covers
    size = int(windows.beginning(np.array([written]))[0])
    assert size == np.flatnonzero(windows.written(every) <= written)[-1]
    assert written - windows.overlap <= windows.written(np.array([size]))[0] <= written


def test_a_window_that_fits_exactly_leaves_no_rest():
    documents, offsets, sizes = Windows(10, 10).cut(np.array([20, 21, 9]))
    assert documents.tolist() == [0, 0, 1, 1, 1, 2]
    assert offsets.tolist() == [0, 10, 0, 10, 20, 0]
    assert sizes.tolist() == [10, 10, 10, 10, 1, 9]
    assert Windows(10, 4).written(np.array([9, 10, 11, 14, 15])).tolist() == [9, 10, 17, 20, 27]


def keys_of(count):
    ids = [f"d{i}" for i in range(count)]
    return lambda number: id_keys(make_key(0, "pass", {"pass": number}), ids)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 2)), max_size=40),
    st.lists(st.fractions(Fraction(1, 10**6), 4), min_size=3, max_size=3),
    windows,
)
def test_each_source_gives_its_passes_to_the_token(documents, epochs, windows):
    lengths = np.array([length for length, _ in documents], np.int64)
    sources = np.array([source for _, source in documents], np.int64)
    taken = take(lengths, sources, epochs, keys_of(len(documents)), windows)
    written = windows.written(taken.sizes)
    assert (np.diff(taken.passes) >= 0).all()
    for source, passes in enumerate(epochs):
        own = sources[taken.documents] == source
        target = math.floor(passes * int(windows.written(lengths[sources == source]).sum()))
        assert target - windows.overlap <= written[own].sum() <= target
        for number in range(math.ceil(passes)):
            now = own & (taken.passes == number)
            found = taken.documents[now]
            assert len(np.unique(found)) == len(found)
            if number + 1 <= passes:
                assert set(found) == set(np.flatnonzero(sources == source))
            # all but the last one are whole, and that one is cut at its end
            assert (taken.sizes[now][:-1] == lengths[found][:-1]).all()
            assert (taken.sizes[now] <= lengths[found]).all()


@given(mixtures(), st.integers(1, 4), st.integers(0, 2**31), windows)
def test_shards_that_know_nothing_of_each_other_make_the_mixture_together(sources, shards, seed, windows):
    rng = np.random.default_rng(seed)
    names = sorted(sources)
    source = rng.integers(0, len(names), 60)
    lengths = rng.integers(1, 50, 60)
    lengths[rng.integers(0, 60)] = 5_000  # longer than any sequence
    here = {name: int(windows.written(lengths[source == number]).sum()) for number, name in enumerate(names)}
    assume(min(here.values()) > 0)
    made = mix({name: replace(sources[name], available=here[name]) for name in names})
    epochs = [made.shares[name].epochs for name in names]
    shard = rng.integers(0, shards, 60)
    keys = keys_of(60)
    tokens = np.zeros(len(names), np.int64)
    for number in range(shards):
        own = np.flatnonzero(shard == number)
        taken = take(lengths[own], source[own], epochs, lambda count, own=own: keys(count)[own], windows)
        np.add.at(tokens, source[own][taken.documents], windows.written(taken.sizes))
    for name, realised in zip(names, tokens, strict=True):
        assert made.shares[name].tokens - shards * (1 + windows.overlap) < realised <= made.shares[name].tokens


def test_each_pass_has_an_order_of_its_own_and_a_part_of_one_follows_it():
    lengths, sources = np.full(50, 10), np.zeros(50, np.int64)
    taken = take(lengths, sources, [Fraction(5, 2)], keys_of(50), Windows(20, 20))
    first, second, third = (taken.documents[taken.passes == number].tolist() for number in range(3))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    whole = take(lengths, sources, [Fraction(3)], keys_of(50), Windows(20, 20))
    assert third == whole.documents[whole.passes == 2][:25].tolist()


shards = st.lists(st.tuples(st.integers(1, 90), st.integers(0, 2)), max_size=30)
passes = st.lists(st.fractions(Fraction(1, 100), 3), min_size=3, max_size=3)
packings = st.builds(
    Packing,
    sequence_length=st.integers(12, 40),
    room_per_sequence=st.integers(0, 2),
    room_per_document=st.integers(0, 2),
)


@given(shards, passes, packings, st.booleans(), st.data())
def test_rows_hold_what_is_taken_and_nothing_else(documents, epochs, packing, across, data):
    stride = data.draw(st.integers(0, packing.capacity - packing.room_per_document))
    windows = Windows.of(packing, stride)
    lengths = np.array([length for length, _ in documents], np.int64)
    sources = np.array([source for _, source in documents], np.int64)
    taken = take(lengths, sources, epochs, keys_of(len(documents)), windows)
    cuts = arrange(taken, sources, packing, windows, across)

    seen = {}  # (pass, document) -> how often each of its tokens lies in a row
    for document, offset, size, number in zip(cuts.documents, cuts.offsets, cuts.sizes, cuts.uses, strict=True):
        assert size > 0
        tokens = seen.setdefault((number, document), np.zeros(lengths[document], np.int64))
        tokens[offset : offset + size] += 1
    wanted = {}
    pieces = windows.cut(taken.sizes)
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
    taken = take(lengths, sources, epochs, keys_of(len(documents)), Windows.of(packing))
    for across in (False, True):
        cuts = arrange(taken, sources, packing, Windows.of(packing), across)
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
    packing = Packing(sequence_length=12, room_per_sequence=2, room_per_document=0)
    taken = take(lengths, sources, [Fraction(3)], keys_of(2), Windows.of(packing))
    cuts = arrange(taken, sources, packing, Windows.of(packing))
    tokens = Ragged.from_lengths(np.arange(35, dtype=np.uint16), lengths)
    rows = assemble_cuts(pa.array(["a", "b"]), tokens, Ragged.from_rows([[0, 7], [0]], np.int32), cuts)
    assert len(rows) == 12
    assert len({rows.sequence_id(row) for row in range(len(rows))}) == 12
    order = np.arange(len(rows))[::-1]
    turned = assemble_cuts(pa.array(["a", "b"]), tokens, Ragged.from_rows([[0, 7], [0]], np.int32), cuts.take(order))
    assert [turned.sequence_id(row) for row in order] == [rows.sequence_id(row) for row in range(len(rows))]


def test_a_stride_that_would_leave_gaps_is_refused():
    assert Windows.of(Packing(sequence_length=16), 13) == Windows.of(Packing(sequence_length=16)) == Windows(13, 13)
    for stride in (-1, 14):
        with pytest.raises(FarspanError, match=rf"stride {stride}: give 0 \(no overlap\) or up to 13"):
            Windows.of(Packing(sequence_length=16), stride)
