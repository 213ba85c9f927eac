"""From character positions, which sentence splitters give, to bytes of UTF-8, which tokenizers count."""

from __future__ import annotations

import numba
import numpy as np


def byte_offsets(text: str, characters: np.ndarray) -> np.ndarray:
    """Where characters begin in ``text.encode()``.

    Args:
        text: without lone surrogates.
        characters: ``(n,)`` int64, ascending, each from 0 to ``len(text)``.

    Returns:
        ``(n,)`` int64.
    """
    if text.isascii():
        return characters
    return _scan(np.frombuffer(text.encode(), np.uint8), characters)


@numba.njit(cache=True)
def _scan(data: np.ndarray, characters: np.ndarray) -> np.ndarray:
    out = np.empty(len(characters), np.int64)
    begun = 0  # characters that begin before ``position``
    position = 0
    for i in range(len(characters)):
        while position < len(data) and (begun < characters[i] or (data[position] & 0xC0) == 0x80):
            begun += (data[position] & 0xC0) != 0x80
            position += 1
        out[i] = position
    return out
