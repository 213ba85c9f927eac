"""Views of Arrow arrays, as Arrow itself converts them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from corpora.storage.arrow_views import booleans, filled, items, numbers, validity
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
    assert filled(holes, 7).tolist() == [7 if value is None else value for value in holes.to_pylist()]
    assert filled(part, 7).tolist() == part.to_pylist()
    assert filled(pa.nulls(count, kind), 7).tolist() == [7] * count


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", [pa.bool_(), pa.int64(), pa.uint16()])
def test_compact_columns_have_the_bytes_that_arrow_gives_them(kind, nulls):
    rng = np.random.default_rng(0)
    values = [None if nulls and rng.random() < 0.3 else bool(rng.integers(2)) for _ in range(90)]
    array = pa.array(values, pa.bool_()).cast(kind)
    for first, count in ((0, 90), (3, 17), (9, 64), (5, 0)):
        part = array.slice(first, count)
        expected = part.take(pa.array(np.arange(count)))
        assert written(compact(part)) == written(expected)


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
