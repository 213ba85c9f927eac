"""Uniform random compositions from keyed draws: the kernel that places the spans of span corruption.

A composition of n into k positive parts is a choice of k - 1 of the n - 1 gaps between n items. Floyd's algorithm
(Bentley and Floyd 1987, "A sample of brilliance") makes that choice with k - 1 draws; a bit set keeps it in order.
"""

from __future__ import annotations

import numba
import numpy as np

from corpora.keyed import philox_blocks

_BLOCKS = 64  # made at once, eight draws each
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_6, _63 = np.uint64(6), np.uint64(63)
_DE_BRUIJN = 0x03F79D71B4CB0A89  # every six bits of it differ, so a product with 2**i names i by its top six
_BIT_NUMBER = np.zeros(64, np.int64)
_BIT_NUMBER[[(_DE_BRUIJN << i & 0xFFFFFFFFFFFFFFFF) >> 58 for i in range(64)]] = np.arange(64)


@numba.njit(cache=True)
def draw_spans(
    keys: np.ndarray,
    sizes: np.ndarray,
    noise: np.ndarray,
    spans: np.ndarray,
    documents: tuple,
    starts: np.ndarray,
    lengths: np.ndarray,
    pieces: np.ndarray,
) -> None:
    """Place ``spans[i]`` spans with ``noise[i]`` tokens together among the ``sizes[i]`` tokens of row i.

    The draws of row i are those of ``numpy.random.Generator(numpy.random.Philox(key=keys[i])).integers``, first for the
    visible stretches, then for the hidden ones.

    Args:
        keys: ``(n, 2)`` uint64, a generator a row.
        sizes, noise, spans: ``(n,)`` int64; ``1 <= spans <= min(noise, sizes - noise)``, or all of noise and spans 0.
        documents: (document starts, offsets) of the rows; a span that crosses a start is cut in two there.
        starts, lengths: receive the pieces of all rows, one after the other; int32, long enough for all.
        pieces: ``(n,)`` int64, receives the number of pieces a row.
    """
    blocks = np.empty((_BLOCKS, 4), np.uint64)
    bits = np.zeros(sizes.max() // 64 + 1 if len(sizes) else 0, np.uint64)
    visible_ends = np.empty(spans.max() if len(spans) else 0, np.int64)
    hidden_ends = np.empty_like(visible_ends)
    out = 0
    for row in range(len(sizes)):
        first_piece = out
        if spans[row]:
            used = _composition(sizes[row] - noise[row], spans[row], keys[row], 0, blocks, bits, visible_ends)
            _composition(noise[row], spans[row], keys[row], used, blocks, bits, hidden_ends)
            border, last_border = documents[1][row], documents[1][row + 1]
            hidden = 0  # tokens hidden so far
            for i in range(spans[row]):
                start = visible_ends[i] + hidden
                hidden = hidden_ends[i]
                stop = visible_ends[i] + hidden
                while border < last_border and documents[0][border] < stop:
                    if documents[0][border] > start:
                        starts[out], lengths[out] = start, documents[0][border] - start
                        start = int(documents[0][border])
                        out += 1
                    border += 1
                starts[out], lengths[out] = start, stop - start
                out += 1
        pieces[row] = out - first_piece


@numba.njit(cache=True)
def _composition(
    items: int, parts: int, key: np.ndarray, used: int, blocks: np.ndarray, bits: np.ndarray, ends: np.ndarray
) -> int:
    """Write where each of ``parts`` stretches of ``items`` ends.

    Args:
        key: ``(2,)`` uint64, the generator.
        used: draws of 32 bits taken from it before.
        blocks: ``(_BLOCKS, 4)`` uint64, the generator's that hold draw number ``used``.
        bits: all 0, before and after.
        ends: receives the ends, ascending; the last is ``items``.

    Returns:
        Draws taken from the generator now.
    """
    stream = blocks.reshape(-1).view(np.uint32)  # low half first, as numpy takes them
    one = np.uint64(1)
    for last in range(items - parts, items - 1):
        # A uniform integer up to last, without bias: Lemire 2019, "Fast random integer generation in an interval".
        bound = np.uint64(last + 1)
        gap = np.uint64(0)
        while last > 0:
            if used & (8 * _BLOCKS - 1) == 0:
                philox_blocks(key[0], key[1], np.uint64(used // 8 + 1), blocks)
            product = np.uint64(stream[used & (8 * _BLOCKS - 1)]) * bound
            gap = product >> _32
            used += 1
            if product & _LOW >= bound or product & _LOW >= (np.uint64(1 << 32) - bound) % bound:
                break
        taken = bits[gap >> _6] >> (gap & _63) & one
        gap += (np.uint64(last) - gap) * taken
        bits[gap >> _6] |= one << (gap & _63)
    part = 0
    for i in range((items >> 6) + 1):
        word = bits[i]
        bits[i] = 0
        while word:
            lowest = word & (~word + one)
            word ^= lowest
            ends[part] = i * 64 + _BIT_NUMBER[(lowest * np.uint64(_DE_BRUIJN)) >> np.uint64(58)] + 1
            part += 1
    ends[part] = items
    return used
