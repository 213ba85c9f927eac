"""Steps through UTF-8 by the kinds of its characters, for compiled code.

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
def stripped(data: np.ndarray, begin: int, i: int, kinds: np.ndarray) -> int:
    """Return the end of ``data[begin:i]`` without trailing white space."""
    while i > begin:
        before = previous(data, i)
        if not kinds[decode(data, before)[0]] & SPACE:
            break
        i = before
    return i
