"""Concatenation of documents to rows, its options and columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.packing.assemble import assemble
from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing, RelatedRows
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


def documents(sizes):
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


def test_no_documents_give_no_rows():
    rows = concatenate(*documents([]), Packing(sequence_length=20)).sequences
    assert len(rows) == 0
    assert Packing(sequence_length=20).padding(rows) == 0


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
    "options",
    [
        {"sequence_length": 3},
        {"sequence_length": 0},
        {"sequence_length": 2**32},
        {"sequence_length": 100, "room_per_document": -1},
        {"sequence_length": 100, "min_document_tokens": 0},
    ],
)
def test_impossible_packing_is_refused_with_the_field(options):
    with pytest.raises(FarspanError, match=r"sequence_length|room_per_document|min_document_tokens"):
        Packing(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_documents": 0}, "--min-documents 0: must be at least 1"),
        ({"min_documents": 4, "max_documents": 3}, "--max-documents 3: is below --min-documents 4"),
    ],
)
def test_impossible_division_is_refused_with_the_flag(options, message):
    with pytest.raises(FarspanError, match=message):
        RelatedRows(**options)


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
