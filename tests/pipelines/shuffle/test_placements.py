"""Placements: written by cluster, read by documents shard, and refused for other documents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from pipelines.shuffle.placements import Placed, ReadPlacements, join_placed, use_numbers, write_placements

STARTS = np.array([0, 4, 4, 9])  # rows of three documents shards, one of them empty


def placed(rows: list[int]) -> Placed:
    number = np.arange(len(rows))
    return Placed(
        document_rows=np.array(rows, np.int64),
        document_ids=[f"made:{row}" for row in rows],
        keys=np.stack([number + 7, number], axis=1).astype(np.uint64) << np.uint64(60),
        positions=number,
        offsets=number * 2,
        sizes=number + 1,
        uses=number % 2,
        clusters=number + 100,
    )


def documents(shard: int) -> pa.RecordBatch:
    rows = range(STARTS[shard], STARTS[shard + 1])
    return pa.record_batch(
        [pa.array([f"made:{row}" for row in rows], pa.string()), pa.array([row % 2 == 0 for row in rows], pa.bool_())],
        names=["document_id", "held_out"],
    )


@pytest.fixture
def read(tmp_path):
    files = (str(tmp_path / "a.arrow"), str(tmp_path / "b.arrow"))
    write_placements(files[0], placed([8, 0, 4, 0]), STARTS)
    write_placements(files[1], placed([3]), STARTS)
    return ReadPlacements(files, tuple(STARTS.tolist()), 4, False)


def test_each_shard_gets_its_own_pieces_from_every_file(read):
    first = read(0, documents(0))
    assert first.rows.tolist() == [0, 0, 3]
    assert first.positions.tolist() == [1, 3, 0]
    assert first.clusters is not None
    assert first.clusters.tolist() == [101, 103, 100]
    assert first.kept.tolist() == [True, False, False, True]
    assert first.read.tolist() == [False, True, False, True]
    assert len(read(1, documents(1)).rows) == 0
    assert read(2, documents(2)).rows.tolist() == [0, 4]


def test_other_documents_than_were_placed_are_refused(read):
    with pytest.raises(FarspanError, match="shard 2 of the documents holds other documents"):
        read(2, documents(2).set_column(0, "document_id", pa.array([f"other:{row}" for row in range(5)])))


def test_placements_are_joined_in_order():
    joined = join_placed([placed([1, 2]), placed([5])])
    assert joined.document_rows.tolist() == [1, 2, 5]
    assert list(joined.document_ids) == ["made:1", "made:2", "made:5"]
    assert len(join_placed([]).document_rows) == 0
    assert join_placed([replace(placed([]), keys=np.empty((0, 2), np.uint64))]).keys.shape == (0, 2)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=20))
def test_uses_count_the_earlier_beginnings_of_a_document(parts):
    seen: set[int] = set()
    whole = []
    for document, begins in parts:  # a document's first part begins a use
        whole.append((document, begins or document not in seen))
        seen.add(document)
    numbers = np.array([document for document, _ in whole], np.int64)
    offsets = np.array([0 if begins else 5 for _, begins in whole], np.int64)
    found = use_numbers(Ragged.from_lengths(numbers, np.array([len(whole)])), offsets)
    counts = dict.fromkeys(range(5), -1)
    for (document, begins), use in zip(whole, found.tolist(), strict=True):
        counts[document] += begins
        assert use == counts[document]
