"""Blocks of corpus rows: to Arrow and back, and row by row."""

from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch, bytes_array, corpus_schema, fixed_bytes, token_list
from corpora.storage.ragged import Ragged
from tests.factories import make_sequences, sequence_batches


def plain(batch: SequenceBatch) -> list[list]:
    """Every row as plain values, column after column."""

    def row(column, i):
        if isinstance(column, pa.Array):
            return column[i].as_py()
        return column[i].tolist()

    return [[row(getattr(batch, field.name), i) for field in fields(batch)] for i in range(len(batch))]


def schema_of(batch: SequenceBatch) -> pa.Schema:
    return corpus_schema(32_000 if batch.tokens.values.dtype == np.uint16 else 100_000)


@given(sequence_batches(), st.data())
def test_arrow_round_trip(batch, data):
    record_batch = batch.to_arrow(schema_of(batch))
    record_batch.validate(full=True)
    assert plain(SequenceBatch.from_arrow(record_batch)) == plain(batch)
    start = data.draw(st.integers(0, len(batch)))
    assert plain(SequenceBatch.from_arrow(record_batch.slice(start))) == plain(batch)[start:]


def test_clusters_are_null_where_there_are_none():
    batch = make_sequences([3, 3, 3], clusters=True)
    column = batch.to_arrow(corpus_schema(32_000)).column("cluster_id")
    assert column.to_pylist() == [0, None, 2]
    assert SequenceBatch.from_arrow(batch.to_arrow(corpus_schema(32_000))).cluster_ids[1] == NO_CLUSTER


@given(sequence_batches(min_rows=1), st.data())
def test_take_and_concatenate(batch, data):
    picks = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=6))
    rows = plain(batch)
    assert plain(batch.take(picks)) == [rows[pick] for pick in picks]
    assert plain(SequenceBatch.concatenate([batch, batch.take(picks)])) == rows + [rows[pick] for pick in picks]


@pytest.mark.parametrize(("vocab_size", "width"), [(65_535, pa.uint16()), (65_536, pa.int32()), (250_000, pa.int32())])
def test_token_width_follows_the_vocabulary(vocab_size, width):
    assert token_list(vocab_size) == pa.large_list(width)


def test_fixed_bytes_of_slices():
    rows = np.arange(48, dtype=np.uint8).reshape(3, 16)
    array = bytes_array(rows)
    assert np.array_equal(fixed_bytes(array), rows)
    assert np.array_equal(fixed_bytes(array.slice(1, 1)), rows[1:2])
    assert fixed_bytes(array.slice(3)).shape == (0, 16)
    batch = make_sequences([2, 2])
    assert batch.sequence_id(1) == batch.sequence_ids[1].tobytes()
    batch = replace(batch, sequence_ids=np.repeat(np.uint8([[7], [0]]), 16, axis=1))  # zeros, which strings would lose
    assert batch.ids() == [batch.sequence_id(row) for row in range(len(batch))]


def test_tokens_are_views_of_the_arrow_buffer():
    record_batch = make_sequences([5, 6]).to_arrow(corpus_schema(32_000))
    batch = SequenceBatch.from_arrow(record_batch)
    assert batch.tokens.values.ctypes.data == record_batch.column("tokens").values.buffers()[1].address
    assert isinstance(batch.tokens, Ragged)
