"""Concatenation of documents to rows; best-fit decreasing and rows of powers of two, against searches of all rows."""

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.packing.assemble import assemble
from corpora.packing.best_fit import best_fit_parts
from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing, RelatedRows
from corpora.packing.windows import Taken, Windows, arrange
from corpora.storage.ragged import Ragged

lengths = st.lists(st.integers(1, 90), max_size=30)
packings = st.builds(
    Packing,
    sequence_length=st.integers(12, 70),
    room_per_sequence=st.integers(0, 3),
    room_per_document=st.integers(0, 2),
    packing=st.sampled_from(["concatenate", "whole-documents"]),
    drop_ragged_tail=st.booleans(),
    min_document_tokens=st.integers(1, 7),
)


def documents(sizes) -> tuple[pa.Array, Ragged, Ragged]:
    """Documents whose every token is unique, so that nothing can be swapped unnoticed."""
    tokens = Ragged.from_lengths(np.arange(sum(sizes), dtype=np.int32), sizes)
    sentences = Ragged.from_rows([np.arange(0, size, 5) for size in sizes], np.int32)
    return pa.array([f"d{i}" for i in range(len(sizes))], pa.string()), tokens, sentences


def kept(sizes, packing):
    return [size for size in sizes if packing.keeps(np.array([size]))[0]]


@given(lengths, packings)
def test_sequences_read_one_after_the_other_are_the_documents(sizes, packing):
    sizes = kept(sizes, packing)
    ids, tokens, sentences = documents(sizes)
    rows = concatenate(ids, tokens, sentences, packing).sequences
    total = len(rows.tokens.values)
    assert np.array_equal(rows.tokens.values, tokens.values[:total])
    if not packing.drop_ragged_tail:
        assert total == sum(sizes)


@given(lengths, packings)
def test_each_row_fits_with_what_rendering_adds_and_padding_is_exact(sizes, packing):
    rows = concatenate(*documents(kept(sizes, packing)), packing).sequences
    rendered = [
        len(rows.tokens[row]) + packing.room_per_document * len(rows.document_starts[row]) + packing.room_per_sequence
        for row in range(len(rows))
    ]
    assert all(length <= packing.sequence_length for length in rendered)
    assert packing.padding(rows) == sum(packing.sequence_length - length for length in rendered)


@given(lengths, packings)
def test_parts_say_where_they_come_from(sizes, packing):
    sizes = kept(sizes, packing)
    ids, tokens, sentences = documents(sizes)
    made = concatenate(ids, tokens, sentences, packing)
    rows, documents_of_parts = made.sequences, []
    for row in range(len(rows)):
        edges = [*rows.document_starts[row].tolist(), len(rows.tokens[row])]
        for part, name in enumerate(rows.document_ids[row].as_py()):
            document, offset = int(name[1:]), rows.document_offsets[row][part]
            size = edges[part + 1] - edges[part]
            assert size > 0
            assert np.array_equal(
                rows.tokens[row][edges[part] : edges[part + 1]], tokens[document][offset : offset + size]
            )
            assert rows.document_lengths[row][part] == sizes[document]
            if packing.packing == "whole-documents":
                assert size == sizes[document]
            documents_of_parts.append(document)
            begins = {edges[part] + s - offset for s in sentences[document] if offset <= s < offset + size} | {
                edges[part]
            }
            inside = {s for s in rows.sentence_starts[row].tolist() if edges[part] <= s < edges[part + 1]}
            assert inside == begins | {edges[part]}
    assert np.array_equal(made.documents, documents_of_parts)


@given(st.lists(st.integers(1, 90), min_size=1, max_size=30))
def test_filling_is_greedy(sizes):
    """No row but the last has room left for another token when documents may be split."""
    packing = Packing(sequence_length=32)
    rows = concatenate(*documents(sizes), packing).sequences
    for row in range(len(rows) - 1):
        used = len(rows.tokens[row]) + len(rows.document_starts[row])
        assert packing.capacity - used <= packing.room_per_document


@given(lengths)
def test_dropping_the_tail_takes_only_the_last_row(sizes):
    whole = concatenate(*documents(sizes), Packing(sequence_length=40)).sequences
    cut = concatenate(*documents(sizes), Packing(sequence_length=40, drop_ragged_tail=True)).sequences
    assert len(whole) - len(cut) in (0, 1)
    assert np.array_equal(whole.sequence_ids[: len(cut)], cut.sequence_ids)


def test_sequence_ids_tell_parts_and_offsets_apart():
    rows = concatenate(*documents([50, 50, 7]), Packing(sequence_length=20)).sequences
    assert len({rows.sequence_id(row) for row in range(len(rows))}) == len(rows)
    again = concatenate(*documents([50, 50, 7]), Packing(sequence_length=20)).sequences
    assert np.array_equal(rows.sequence_ids, again.sequence_ids)


def rows(uses=None, cluster_ids=None):
    """Two rows: parts of 3 and 2 tokens, then a continuation of 4 tokens of a document of 10."""
    return assemble(
        pa.array(["a", "b", "c"]),
        Ragged.from_lengths(np.arange(9, dtype=np.uint16), [3, 2, 4]),
        np.array([1, 3, 7]),
        np.array([0, 0, 6]),
        np.array([3, 2, 10]),
        np.array([0, 2, 3]),
        uses,
        cluster_ids,
    )


def test_parts_and_sentences_count_from_the_beginning_of_their_row():
    made = rows(cluster_ids=np.array([7, -1]))
    assert [made.tokens[row].tolist() for row in (0, 1)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8]]
    assert [made.document_starts[row].tolist() for row in (0, 1)] == [[0, 3], [0]]
    assert [made.sentence_starts[row].tolist() for row in (0, 1)] == [[0, 1, 3], [0, 2]]
    assert [made.document_offsets[row].tolist() for row in (0, 1)] == [[0, 0], [6]]
    assert made.document_ids.to_pylist() == [["a", "b"], ["c"]]
    assert made.cluster_ids.tolist() == [7, -1]


def test_a_row_that_repeats_another_has_an_id_of_its_own():
    once, again, later = rows(), rows(uses=np.array([1, 0, 0])), rows(uses=np.array([0, 1, 0]))
    assert not (once.sequence_ids[0] == again.sequence_ids[0]).all()
    assert (once.sequence_ids[1] == again.sequence_ids[1]).all()
    assert (once.sequence_ids == later.sequence_ids).all()


def test_a_document_longer_than_every_sequence_is_kept_only_when_it_may_be_split():
    assert Packing(sequence_length=20).keeps(np.array([100]))[0]
    assert not Packing(sequence_length=20, packing="whole-documents").keeps(np.array([100]))[0]
    assert Packing(sequence_length=20, packing="whole-documents").keeps(np.array([17]))[0]


@pytest.mark.parametrize(
    ("options", "length", "documents"),
    [({}, 4 * 128 + 2, 4), ({}, 100, 2), ({"max_documents": 9}, 20, 9), ({"min_documents": 7}, 100, 7)],
)
def test_the_largest_number_of_documents(options, length, documents):
    """As many as have 128 positions each, or as given; each needs a position for text beside its separator."""
    rows = RelatedRows(**options)
    assert rows.largest(Packing(sequence_length=length)) == documents
    with pytest.raises(FarspanError, match=rf"--max-documents {documents}: a row of \d+ positions has no room"):
        replace(rows, max_documents=documents).largest(Packing(sequence_length=2 * documents + 1))


document_lengths = st.lists(st.integers(1, 200), max_size=40)
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


def packed_best(document_lengths, packing):
    return rows_of(
        arrange(
            Taken.all(np.array(document_lengths, np.int64)),
            np.zeros(len(document_lengths), int),
            packing,
            Windows.of(packing),
        )
    )


def search_all_rows(document_lengths, capacity, reserved):
    """Best-fit decreasing in quadratic time: the row of each piece, rows numbered as they are opened."""
    free, filled, row_of = [], [], {}
    for time, piece in enumerate(
        sorted(range(len(document_lengths)), key=lambda piece: (-document_lengths[piece], piece))
    ):
        need = document_lengths[piece] + reserved
        fitting = [row for row in range(len(free)) if free[row] >= need]
        row = min(fitting, key=lambda row: (free[row], -filled[row]), default=len(free))
        if row == len(free):
            free.append(capacity)
            filled.append(time)
        free[row] -= need
        filled[row] = time
        row_of[piece] = row
    return [row_of[piece] for piece in range(len(document_lengths))]


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


@given(document_lengths, sizes)
def test_rows_hold_all_tokens_once_and_cut_only_what_is_longer_than_a_row(document_lengths, packing):
    rows = packed_best(document_lengths, packing)
    held = [np.zeros(length, int) for length in document_lengths]
    for row in rows:
        assert row
        assert sum(size + packing.room_per_document for *_, size in row) <= packing.capacity
        for document, offset, size in row:
            assert size == min(document_lengths[document] - offset, packing.room)
            assert offset % packing.room == 0
            held[document][offset : offset + size] += 1
    assert all((times == 1).all() for times in held)


@given(document_lengths, sizes)
def test_no_two_rows_fit_into_one(document_lengths, packing):
    used = sorted(
        sum(size + packing.room_per_document for *_, size in row) for row in packed_best(document_lengths, packing)
    )
    assert len(used) < 2 or used[0] + used[1] > packing.capacity


@given(document_lengths, st.integers(0, 3), st.integers(1, 20))
def test_powers_of_two_hold_one_document_each_and_lose_only_short_ends(document_lengths, reserved, least):
    packing = Packing(
        sequence_length=64, room_per_sequence=reserved, min_document_tokens=least, packing="powers-of-two"
    )
    smallest = packing.power_sizes[-1]
    document_lengths = [length for length in document_lengths if packing.keeps(np.array([length]))[0]]
    ends = [0] * len(document_lengths)
    for row in sorted(packed_best(document_lengths, packing), key=lambda row: row[0]):
        ((document, offset, size),) = row
        positions = size + packing.room_per_sequence + packing.room_per_document
        assert positions & (positions - 1) == 0
        assert positions <= 64
        assert offset == ends[document]
        ends[document] += size
    for length, end in zip(document_lengths, ends, strict=True):
        assert 0 <= length - end < smallest
        assert end > 0


def test_a_document_of_powers_of_two_without_reserved_positions_is_its_binary_number():
    packing = Packing(sequence_length=64, room_per_sequence=0, room_per_document=0, packing="powers-of-two")
    rows = packed_best([0b1011011, 64], packing)
    assert sorted(size for row in rows for document, _, size in row if document == 0) == [1, 2, 8, 16, 64]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Packing, {"sequence_length": 3}, "sequence_length 3 leaves no room"),
        (Packing, {"sequence_length": 0}, "sequence_length 0 leaves no room"),
        (Packing, {"sequence_length": 2**32}, "sequence_length 4294967296: positions are 32 bit"),
        (Packing, {"room_per_document": -1}, "room_per_document -1: must be at least 0"),
        (Packing, {"min_document_tokens": 0}, "min_document_tokens 0: must be at least 1"),
        (
            Packing,
            {"packing": "best-fit", "drop_ragged_tail": True},
            "drop_ragged_tail has no effect with",
        ),
        (Packing, {"packing": "powers-of-two"}, "sequence_length 100: .* power of two, such as 64"),
        (
            Packing,
            {"packing": "whole-documents", "min_document_tokens": 98},
            "98 .* everything: .* 97 tokens",
        ),
        (RelatedRows, {"min_documents": 0}, "--min-documents 0: must be at least 1"),
        (RelatedRows, {"min_documents": 4, "max_documents": 3}, "--max-documents 3: is below --min-documents 4"),
    ],
)
def test_impossible_options_are_refused_by_name(kind, options, message):
    with pytest.raises(FarspanError, match=message):
        kind(**({"sequence_length": 100} if kind is Packing else {}) | options)
