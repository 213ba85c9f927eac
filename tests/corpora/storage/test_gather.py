"""Gathered rows against plain Python over lists."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.storage.gather import Gatherable, gather
from corpora.storage.ragged import Ragged


@dataclass(frozen=True)
class Block:
    number: np.ndarray
    pair: np.ndarray
    lists: Ragged
    names: pa.Array
    scores: Ragged | None = None


ROW = st.tuples(
    st.integers(0, 1 << 40),
    st.tuples(st.integers(0, 255), st.integers(0, 255)),
    st.lists(st.integers(0, 60_000), max_size=5),
    st.lists(st.text(max_size=3), max_size=3),
)


def block(rows: list, scores: bool = False) -> Block:
    numbers, pairs, lists, names = zip(*rows, strict=True)
    return Block(
        np.array(numbers, np.int64),
        np.array(pairs, np.uint8),
        Ragged.from_rows(lists, np.uint16),
        pa.array(names, pa.list_(pa.string())),
        Ragged.from_rows([[0.5] * len(row) for row in lists], np.float32) if scores else None,
    )


def rows_of(made: Block) -> list:
    lists = [made.lists[row].tolist() for row in range(len(made.lists))]
    return list(zip(made.number.tolist(), map(tuple, made.pair.tolist()), lists, made.names.to_pylist(), strict=True))


@given(st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=4), st.booleans(), st.data())
def test_rows_of_many_blocks(blocks, scores, data):
    places = [(which, row) for which, rows in enumerate(blocks) for row in range(len(rows))]
    picks = data.draw(st.lists(st.sampled_from(places), max_size=8))
    which, rows = (np.array([pick[side] for pick in picks], np.int64) for side in (0, 1))
    made = gather([Gatherable.of(block(rows, scores)) for rows in blocks], which, rows)
    assert rows_of(made) == [blocks[which][row] for which, row in picks]
    assert (made.scores is not None) == scores
    if scores:
        assert made.scores.lengths.tolist() == made.lists.lengths.tolist()
        assert set(made.scores.values.tolist()) <= {0.5}


def test_views_that_do_not_begin_at_their_start():
    rows = [(i, (i, i), [i] * i, [str(i)]) for i in range(6)]
    whole = block(rows)
    sliced = Block(
        whole.number[::2],
        whole.pair[::2],
        Ragged(whole.lists.values, whole.lists.offsets[2:5]),
        whole.names.slice(1, 2),
    )
    made = gather([Gatherable.of(sliced)], np.zeros(2, np.int64), np.array([1, 0]))
    assert made.number.tolist() == [2, 0]
    assert made.pair.tolist() == [[2, 2], [0, 0]]
    assert [made.lists[row].tolist() for row in (0, 1)] == [[3, 3, 3], [2, 2]]
    assert made.names.to_pylist() == [["2"], ["1"]]


@pytest.mark.parametrize("row", [-1, 2, 1 << 40])
def test_no_such_row(row):
    found = Gatherable.of(block([(1, (1, 1), [1], []), (2, (2, 2), [2], [])]))
    with pytest.raises(FarspanError, match="damaged"):
        gather([found], np.zeros(1, np.int64), np.array([row]))


@pytest.mark.parametrize("offsets", [[0, 5], [-1, 1], [1, 0], [0, 1 << 50]])
def test_offsets_that_point_outside(offsets):
    whole = replace(block([(1, (1, 1), [7, 8], [])]), lists=Ragged(np.array([7, 8], np.uint16), np.array(offsets)))
    with pytest.raises(FarspanError, match="damaged"):
        gather([Gatherable.of(whole)], np.zeros(1, np.int64), np.zeros(1, np.int64))


@pytest.mark.parametrize("column", ["scores", "names"])
def test_a_column_that_only_some_blocks_have(column):
    whole = block([(1, (1, 1), [1], [])], scores=True)
    blocks = [Gatherable.of(each) for each in (whole, replace(whole, **{column: None}))]
    with pytest.raises(FarspanError, match="only some record batches"):
        gather(blocks, np.arange(2), np.zeros(2, np.int64))
