"""Mask rows: to Arrow and back, and row by row."""

from dataclasses import fields

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpora.storage.ragged import Ragged
from objectives.api.masks import MASK_SCHEMA, MaskBatch


@st.composite
def mask_batches(draw: st.DrawFn, min_rows: int = 0) -> MaskBatch:
    """Rows with any of the optional columns."""
    counts = draw(st.lists(st.integers(0, 4), min_size=min_rows, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    total = sum(counts)

    def column(dtype: type) -> Ragged:
        return Ragged.from_lengths(rng.integers(0, 15, total).astype(dtype), counts)

    optional = {
        "span_scores": lambda: column(np.float32),
        "span_ranks": lambda: column(np.int32),
        "replacements": lambda: column(np.int32),
        "global_positions": lambda: column(np.int32),
        "span_labels": lambda: pa.array([["entity"] * count for count in counts], pa.list_(pa.string())),
    }
    return MaskBatch(
        sequence_ids=rng.integers(0, 256, (len(counts), 16)).astype(np.uint8),
        span_starts=column(np.int32),
        span_lengths=column(np.int32),
        span_flags=column(np.uint8),
        source_lengths=rng.integers(0, 99, len(counts)).astype(np.int32),
        target_lengths=rng.integers(0, 99, len(counts)).astype(np.int32),
        **{name: make() for name, make in optional.items() if counts and draw(st.booleans())},
    )


def plain(masks: MaskBatch) -> list[list]:
    def row(column, i):
        if column is None:
            return None
        return column[i].as_py() if isinstance(column, pa.Array) else column[i].tolist()

    return [[row(getattr(masks, field.name), i) for field in fields(masks)] for i in range(len(masks))]


@given(mask_batches(), st.data())
def test_arrow_round_trip(masks, data):
    record_batch = masks.to_arrow()
    record_batch.validate(full=True)
    assert record_batch.schema == MASK_SCHEMA
    assert plain(MaskBatch.from_arrow(record_batch)) == plain(masks)
    start = data.draw(st.integers(0, len(masks)))
    assert plain(MaskBatch.from_arrow(record_batch.slice(start))) == plain(masks)[start:]


@given(mask_batches(min_rows=1), st.data())
def test_take_and_concatenate(masks, data):
    picks = data.draw(st.lists(st.integers(0, len(masks) - 1), min_size=1, max_size=5))
    rows = plain(masks)
    assert plain(masks.take(picks)) == [rows[pick] for pick in picks]
    assert plain(MaskBatch.concatenate([masks, masks.take(picks)])) == rows + [rows[pick] for pick in picks]


def test_columns_that_are_not_used_are_null():
    empty = Ragged(np.empty(0, np.int32), np.zeros(2, np.int64))
    flags = Ragged(np.empty(0, np.uint8), np.zeros(2, np.int64))
    zero = np.zeros(1, np.int32)
    record_batch = MaskBatch(np.zeros((1, 16), np.uint8), empty, empty, flags, zero, zero).to_arrow()
    assert record_batch.column("span_scores").to_pylist() == [None]
    assert record_batch.column("span_starts").to_pylist() == [[]]
    assert MaskBatch.from_arrow(record_batch).span_scores is None
