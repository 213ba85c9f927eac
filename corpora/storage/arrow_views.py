"""Arrow arrays as numpy arrays, and rows as Python values.

Arrow's own conversions import pandas if it is installed, and some load all of Arrow's functions, which takes longer
than a small job.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_FLOATS = {"halffloat": "f2", "float": "f4", "double": "f8"}  # Arrow's names; those of integers are numpy's


def numbers(array: pa.Array) -> np.ndarray:
    """Return a read-only view, ``(n,)``, of an array of numbers without nulls."""
    if array.null_count:
        raise pa.ArrowInvalid("a null among numbers")
    kind, data = _dtype(array), array.buffers()[1]
    if not len(array) or data is None:
        view = np.empty(0, kind)
    else:
        view = np.frombuffer(data, kind, array.offset + len(array))[array.offset :]
    view.flags.writeable = False
    return view


def fill_nulls(array: pa.Array, value: int) -> np.ndarray:
    """Return a copy, ``(n,)``, of an array of numbers, with ``value`` in place of nulls."""
    valid = validity(array)
    if not valid.any():
        return np.full(len(array), value, _dtype(array))
    data = np.frombuffer(array.buffers()[1], _dtype(array), array.offset + len(array))
    return np.where(valid, data[array.offset :], data.dtype.type(value))


def items(lists: pa.ListArray | pa.LargeListArray) -> pa.Array:
    """Return the items of all lists of an array without nulls, in order."""
    if not len(lists):
        return lists.values[:0]
    first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    return lists.values.slice(first, last - first)


def booleans(array: pa.BooleanArray) -> np.ndarray:
    """Return a copy, ``(n,)`` bool, of an array without nulls."""
    return _unpack(array, array.buffers()[1])


def validity(array: pa.Array) -> np.ndarray:
    """Return ``(n,)`` bool: True where the array has a value, False for nulls."""
    bits = array.buffers()[0]
    return np.ones(len(array), bool) if bits is None else _unpack(array, bits)


def _unpack(array: pa.Array, bits: pa.Buffer) -> np.ndarray:
    if not len(array):
        return np.empty(0, bool)
    end = array.offset + len(array)
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=end, bitorder="little")[array.offset :].view(bool)


def _dtype(array: pa.Array) -> np.dtype:
    name = str(array.type)
    return np.dtype(_FLOATS.get(name, name))


def plain_row(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    """Return a row by column: lists of numbers as read-only numpy arrays, all else as Python objects, null as None."""
    return {name: _plain(batch.column(name)[row]) for name in batch.schema.names}


def _plain(value: pa.Scalar) -> Any:
    kind = value.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if is_list and value.is_valid and pa.types.is_primitive(kind.value_type):
        return np.asarray(value.values)
    return value.as_py()
