"""Ragged rows against lists of lists."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.storage.ragged import Ragged, read_only

ROWS = st.lists(st.lists(st.integers(0, 60_000), max_size=6), max_size=6)


def lists(ragged: Ragged) -> list[list[int]]:
    return [ragged[row].tolist() for row in range(len(ragged))]


@given(ROWS, st.sampled_from([np.uint16, np.int32]))
def test_holds_the_rows(rows, dtype):
    ragged = Ragged.from_rows(rows, dtype)
    assert lists(ragged) == rows
    assert ragged.values.dtype == dtype
    assert ragged.lengths.tolist() == [len(row) for row in rows]


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.large_list(pa.uint16())])
@given(rows=ROWS, data=st.data())
def test_arrow_round_trip(kind, rows, data):
    ragged = Ragged.from_rows(rows, kind.value_type.to_pandas_dtype())
    array = ragged.to_arrow(kind)
    array.validate(full=True)
    assert array.type == kind
    assert array.to_pylist() == rows
    # A slice of an Arrow array is a view with offsets that do not begin at 0.
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    back = Ragged.from_arrow(array.slice(start, stop - start))
    assert lists(back) == rows[start:stop]
    assert back.to_arrow(kind).to_pylist() == rows[start:stop]
    assert lists(back.compact()) == rows[start:stop]
    assert back.compact().offsets[0] == 0


def test_from_arrow_copies_no_values():
    array = Ragged.from_rows([[1, 2], [3]], np.uint16).to_arrow(pa.large_list(pa.uint16()))
    assert Ragged.from_arrow(array).values.ctypes.data == array.values.buffers()[1].address


@given(ROWS, st.data())
def test_take(rows, data):
    picks = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8)) if rows else []
    taken = Ragged.from_rows(rows, np.int32).take(picks)
    assert lists(taken) == [rows[pick] for pick in picks]
    assert taken.values.dtype == np.int32


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_concatenate(blocks):
    joined = Ragged.concatenate([Ragged.from_rows(rows, np.int32) for rows in blocks])
    assert lists(joined) == [row for rows in blocks for row in rows]


def test_concatenate_leaves_out_what_slices_do_not_show():
    whole = Ragged.from_rows([[1], [2, 3], [4]], np.int32)
    middle = Ragged(whole.values, whole.offsets[1:3])
    assert lists(Ragged.concatenate([middle, middle])) == [[2, 3], [2, 3]]


def test_rows_are_counted_from_the_end_too_and_shown_by_their_number():
    ragged = Ragged.from_rows([[1], [], [2, 3]], np.int32)
    assert [row.tolist() for row in (ragged[-1], ragged[-2], ragged[-3])] == [[2, 3], [], [1]]
    assert [row.tolist() for row in ragged] == [[1], [], [2, 3]]
    assert repr(ragged) == "Ragged(3 rows, 3 values of int32)"


def test_views_for_kernels_cannot_be_written_and_the_arrays_can():
    numbers, flags = np.arange(3), np.zeros(2, bool)
    views = read_only(numbers, flags)
    assert [view.flags.writeable for view in views] == [False, False]
    assert np.shares_memory(views[0], numbers)
    numbers[0] = 7
    assert views[0][0] == 7
