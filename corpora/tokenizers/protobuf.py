"""Reading of protocol buffers without their schema; SentencePiece models are protocol buffers."""

from __future__ import annotations

from collections.abc import Iterator


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield (number, value) of each field of a protocol buffer; fixed-width numbers as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 5:
                size = 4
            case 2:
                size, at = _varint(data, at)
            case kind:
                raise ValueError(f"field {key >> 3} has wire type {kind}")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def message(value: bytes | int) -> bytes:
    """Return a field's value if it is a message or text."""
    if isinstance(value, int):
        raise ValueError("a number where a message is expected")
    return value
