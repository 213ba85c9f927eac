"""Uniform random compositions from keyed draws, which place the spans of span corruption.

A composition of n into k positive parts is a choice of k - 1 of the n - 1 gaps between n items. Floyd's algorithm
(Bentley and Floyd 1987, "A sample of brilliance") makes that choice with k - 1 draws; a bit set keeps it in order.
"""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled
from corpora.keyed import philox_blocks

PLACEMENTS = ("t5", "rolled", "free")

_BLOCKS = 64  # made at once, eight draws each
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_6, _63 = np.uint64(6), np.uint64(63)
_DE_BRUIJN = 0x03F79D71B4CB0A89  # every six bits of it differ, so a product with 2**i names i by its top six
_BIT_NUMBER = np.zeros(64, np.int64)
_BIT_NUMBER[[(_DE_BRUIJN << i & 0xFFFFFFFFFFFFFFFF) >> 58 for i in range(64)]] = np.arange(64)


@compiled(small=True)
def draw_spans(
    keys: np.ndarray,
    sizes: np.ndarray,
    noise: np.ndarray,
    spans: np.ndarray,
    placement: int,
    documents: tuple,
    starts: np.ndarray,
    lengths: np.ndarray,
    pieces: np.ndarray,
) -> None:
    """Place ``spans[i]`` spans with ``noise[i]`` tokens together among the ``sizes[i]`` tokens of row i.

    The draws of row i are those of ``numpy.random.Generator(numpy.random.Philox(key=keys[i])).integers``, first for the
    visible stretches, then for the hidden ones, then for the offset of a roll.

    Args:
        keys: ``(n, 2)`` uint64, one generator per row.
        sizes, noise, spans: ``(n,)`` int64; ``1 <= spans <= min(noise, sizes - noise)`` (one more if free), or noise
            and spans both 0.
        placement: index in ``PLACEMENTS``. ``t5``: visible and hidden stretches alternate, visible first. ``rolled``:
            the same, then rotated by one random offset; a span that wraps around becomes two. ``free``: the visible
            stretches at start and end may be empty.
        documents: (document starts, offsets) of the rows; a span that crosses a start is cut in two there.
        starts, lengths: output, the pieces of all rows, concatenated; int32, long enough for all.
        pieces: output, ``(n,)`` int64, number of pieces per row.
    """
    # Longer than other functions: in plain Python, which small batches run as, a call of a kernel per row costs more.
    rolled, free = placement == 1, placement == 2
    blocks = np.empty((_BLOCKS, 4), np.uint64)
    bits = np.zeros((sizes.max() + 1) // 64 + 1 if len(sizes) else 0, np.uint64)
    visible_ends = np.empty(spans.max() + 1 if len(spans) else 0, np.int64)
    hidden_ends = np.empty_like(visible_ends)
    cut = np.empty(2, np.int64)
    out = 0
    for row in range(len(sizes)):
        first_piece, size, offset = out, sizes[row], np.int64(0)
        if spans[row]:
            # Free: one more stretch, and a token more in the first and the last, so that these may end up empty.
            visible = size - noise[row] + 2 * free
            used = _composition(visible, spans[row] + free, keys[row], 0, blocks, bits, visible_ends)
            used = _composition(noise[row], spans[row], keys[row], used, blocks, bits, hidden_ends)
            if rolled:
                # Where a row of one more token is cut in two.
                _composition(size + 1, 2, keys[row], used, blocks, bits, cut)
                offset = cut[0] - 1
            border, last_border = documents[1][row], documents[1][row + 1]
            # Rolled: first what has moved over the end, then the rest.
            for shift in range(offset - size if offset else 0, offset + 1, size):
                hidden = 0  # tokens hidden so far
                for i in range(spans[row]):
                    start = max(visible_ends[i] - free + hidden + shift, 0)
                    hidden = hidden_ends[i]
                    stop = min(visible_ends[i] - free + hidden + shift, size)
                    if stop <= start:
                        continue
                    while border < last_border and documents[0][border] < stop:
                        if documents[0][border] > start:
                            starts[out], lengths[out] = start, documents[0][border] - start
                            start = int(documents[0][border])
                            out += 1
                        border += 1
                    starts[out], lengths[out] = start, stop - start
                    out += 1
        pieces[row] = out - first_piece


@compiled(small=True)
def _composition(
    items: int, parts: int, key: np.ndarray, used: int, blocks: np.ndarray, bits: np.ndarray, ends: np.ndarray
) -> int:
    """Draw a composition of ``items`` into ``parts`` stretches and write the end of each.

    Args:
        key: ``(2,)`` uint64, the generator.
        used: number of 32-bit draws taken from it before.
        blocks: ``(_BLOCKS, 4)`` uint64, the generator's blocks that contain draw number ``used``.
        bits: scratch, all 0 before and after.
        ends: output, the ends, ascending; the last is ``items``.

    Returns:
        Number of draws taken from the generator so far.
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
