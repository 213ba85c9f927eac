"""Columns of rows: views of Arrow's arrays, ragged rows, and the gathering of rows."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.storage.arrow_views import booleans, fill_nulls, items, numbers, validity
from corpora.storage.gather import Gatherable, gather
from corpora.storage.ragged import Ragged, read_only
from corpora.storage.shards import compact


@pytest.mark.parametrize(("first", "count"), [(0, 77), (3, 70), (8, 8), (9, 0), (77, 0)])
def test_bits_are_those_of_arrow(first, count):
    bits = np.random.default_rng(0).random(77) < 0.5
    whole = pa.array(bits)
    assert booleans(whole.slice(first, count)).tolist() == whole.slice(first, count).to_pylist()
    for values in (whole, pa.array(np.arange(77)), pa.array(["a"] * 77)):
        holes = pa.array([value if bit else None for value, bit in zip(values.to_pylist(), bits, strict=True)])
        for array in (values, holes):
            part = array.slice(first, count)
            assert validity(part).tolist() == [value is not None for value in part.to_pylist()]


@pytest.mark.parametrize("kind", [pa.uint16(), pa.int32(), pa.int64(), pa.float32()])
@pytest.mark.parametrize(("first", "count"), [(0, 50), (3, 40), (9, 0), (50, 0)])
def test_numbers_are_those_of_arrow(kind, first, count):
    values = np.arange(50).tolist()
    part = pa.array(values, kind).slice(first, count)
    found, expected = numbers(part), part.to_numpy()
    assert np.array_equal(found, expected)
    assert (found.dtype, found.flags.writeable) == (expected.dtype, expected.flags.writeable)
    holes = pa.array([None if value % 3 == 0 else value for value in values], kind).slice(first, count)
    assert fill_nulls(holes, 7).tolist() == [7 if value is None else value for value in holes.to_pylist()]
    assert fill_nulls(part, 7).tolist() == part.to_pylist()
    assert fill_nulls(pa.nulls(count, kind), 7).tolist() == [7] * count


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", [pa.bool_(), pa.int64(), pa.uint16()])
def test_compact_columns_have_the_bytes_that_arrow_gives_them(kind, nulls):
    rng = np.random.default_rng(0)
    values = [None if nulls and rng.random() < 0.3 else bool(rng.integers(2)) for _ in range(90)]
    array = pa.array(values, pa.bool_()).cast(kind)
    for first, count in ((0, 90), (3, 17), (9, 64), (5, 0)):
        part = array.slice(first, count)
        assert written(compact(part)) == written(part.take(pa.array(np.arange(count))))


def written(array: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([array], names=["a"])
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string())])
@pytest.mark.parametrize(("first", "count"), [(0, 5), (1, 3), (2, 2), (3, 0), (5, 0)])
def test_items_are_those_of_arrow(kind, first, count):
    part = pa.array([["a"], [], ["b", "c"], [], ["d"]], kind).slice(first, count)
    assert items(part) == part.flatten()


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
    array = Ragged.from_rows(rows, kind.value_type.to_pandas_dtype()).to_arrow(kind)
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
