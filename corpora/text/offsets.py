"""Conversion between character positions (of sentence splitters) and UTF-8 byte positions (of tokenizers)."""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled


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
