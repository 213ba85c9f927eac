"""Fields of protocol buffers, read back from bytes that the test encodes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.tokenizers.protobuf import fields, message


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the highest bit of a byte says that more follow."""
    data = []
    while True:
        value, low = divmod(value, 128)
        data.append(low | (128 if value else 0))
        if not value:
            return bytes(data)


def encoded(number: int, value: int | float | bytes) -> bytes:
    """A field as protoc writes it: an integer, a double, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


numbers = st.integers(1, (1 << 29) - 1)
values = st.one_of(st.integers(0, (1 << 64) - 1), st.floats(allow_nan=False), st.binary(max_size=300))


@given(st.lists(st.tuples(numbers, values), max_size=8))
def test_every_field_is_read_back_in_order(pairs):
    data = b"".join(encoded(number, value) for number, value in pairs)
    expected = [(number, struct.pack("<d", v) if isinstance(v, float) else v) for number, v in pairs]
    assert list(fields(data)) == expected


def test_floats_of_four_bytes():
    assert list(fields(varint(2 << 3 | 5) + struct.pack("<f", -1.5))) == [(2, struct.pack("<f", -1.5))]


def test_other_wire_types_are_refused():
    with pytest.raises(ValueError, match="field 4 has wire type 3"):
        list(fields(varint(4 << 3 | 3)))


def test_a_number_is_no_message():
    assert message(b"text") == b"text"
    with pytest.raises(ValueError, match="a message is expected"):
        message(7)
