"""UTF-8: steps through it by kinds of characters, and conversion between positions of characters and of bytes.

``kinds`` is ``(0x110000,)`` uint8, the bits below of each code point (``punkt.character_kinds``). Positions are bytes.
"""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled

SPACE, MARK, CLOSER, BORDER, APOSTROPHE, LETTER, LOWER, DECIMAL = (1 << bit for bit in range(8))

_TAB, _BLANK = 9, 32


@compiled
def decode(data: np.ndarray, i: int) -> tuple[np.int64, int]:
    """Return the code point at ``i`` and the position after it."""
    byte = np.int64(data[i])
    if byte < 0x80:
        return byte, i + 1
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | np.int64(data[i + 1] & 0x3F), i + 2
    tail = np.int64(data[i + 1] & 0x3F) << 6 | np.int64(data[i + 2] & 0x3F)
    if byte < 0xF0:
        return (byte & 0xF) << 12 | tail, i + 3
    return (byte & 7) << 18 | tail << 6 | np.int64(data[i + 3] & 0x3F), i + 4


@compiled
def previous(data: np.ndarray, i: int) -> int:
    """Return the position of the character that ends at ``i``."""
    i -= 1
    while data[i] & 0xC0 == 0x80:
        i -= 1
    return i


@compiled
def skip(data: np.ndarray, i: int, stop: int, kinds: np.ndarray, kind: int) -> int:
    """Return the first position from ``i`` on whose character is not of ``kind``; ``stop`` if there is none."""
    while i < stop:
        code, after = decode(data, i)
        if not kinds[code] & kind:
            break
        i = after
    return i


@compiled
def skip_blanks(data: np.ndarray, i: int, stop: int) -> int:
    """Return the position after the blanks and tabs of ``data[i:stop]``."""
    while i < stop and (data[i] == _BLANK or data[i] == _TAB):
        i += 1
    return i


@compiled
def skip_word(data: np.ndarray, i: int, stop: int, kinds: np.ndarray) -> int:
    """Return the position of the first white space of ``data[i:stop]``; ``stop`` if there is none."""
    while i < stop:
        code, after = decode(data, i)
        if kinds[code] & SPACE:
            break
        i = after
    return i


@compiled
def strip(data: np.ndarray, begin: int, i: int, kinds: np.ndarray) -> int:
    """Return the end of ``data[begin:i]`` without trailing white space."""
    while i > begin:
        before = previous(data, i)
        if not kinds[decode(data, before)[0]] & SPACE:
            break
        i = before
    return i


def byte_offsets(text: str | bytes, characters: np.ndarray) -> np.ndarray:
    """Return the byte positions of characters in ``text.encode()``.

    ``characters``: ``(n,)`` int64, ascending, each from 0 to the number of characters. Returns ``(n,)`` int64.
    """
    if text.isascii():
        return characters
    return _scan(np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8), characters)


def character_offsets(text: bytes, positions: np.ndarray) -> np.ndarray:
    """Return the number of characters before byte positions of UTF-8; the inverse of ``byte_offsets``.

    ``positions``: ``(n,)`` int64, strictly ascending, each the first byte of a character. Returns ``(n,)`` int64.
    """
    if text.isascii() or not len(positions):
        return positions
    begins = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
    counts = np.add.reduceat(begins, positions, dtype=np.int64)
    return np.cumsum(counts) - counts + np.count_nonzero(begins[: positions[0]])


@compiled(small=True)
def _scan(data: np.ndarray, characters: np.ndarray) -> np.ndarray:
    out = np.empty(len(characters), np.int64)
    begun = 0  # characters that start before ``position``
    position = 0
    for i in range(len(characters)):
        # n bytes hold at most n characters, so this cannot overshoot; the compiler vectorises a pure counting loop
        while begun < characters[i] and position < len(data):
            end = min(position + characters[i] - begun, len(data))
            for byte in data[position:end]:
                begun += (byte & 0xC0) != 0x80
            position = end
        while position < len(data) and (data[position] & 0xC0) == 0x80:
            position += 1
        out[i] = position
    return out
