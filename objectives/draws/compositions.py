"""Span corruption: numbers of hidden tokens and spans, their placement by uniform random compositions, and mask rows.

Numbers: Raffel et al. 2020 (T5), section 3.1.4, and the published code (``random_spans_helper``). A composition of n
into k positive parts is a choice of k - 1 of the n - 1 gaps between n items. Floyd's algorithm (Bentley and Floyd 1987,
"A sample of brilliance") makes that choice with k - 1 draws; a bit set keeps it in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from corpora.compiled import compiled, trailing_zeros
from corpora.keyed import philox_blocks
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET, MaskBatch
from objectives.rendering.render import columns

PLACEMENTS = ("t5", "rolled", "free")

_BLOCKS = 64  # generated at once; a block has eight draws
_LOW, _32, _TWO_32 = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1 << 32)
_0, _1, _6, _63 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)


@compiled(small=True)
def draw_spans(
    keys: np.ndarray,
    sizes: np.ndarray,
    noise: np.ndarray,
    spans: np.ndarray,
    firsts: np.ndarray,
    placements: np.ndarray,
    documents: tuple,
    starts: np.ndarray,
    lengths: np.ndarray,
    pieces: np.ndarray,
) -> None:
    """Place ``spans[i]`` spans with ``noise[i]`` tokens in all among ``sizes[i]`` tokens of row i.

    The draws of row i are those of ``numpy.random.Generator(numpy.random.Philox(key=keys[i])).integers``, first for the
    visible stretches, then for the hidden ones, then for the offset of a rotation.

    The arguments up to ``placements`` are those of ``SpanDraws``; ``1 <= spans <= min(noise, sizes - noise)`` (one more
    if free), or noise and spans are both 0. With placement ``t5``, visible and hidden stretches alternate, visible
    first; ``rolled`` then rotates the row by one random offset, and a span that wraps around becomes two; ``free``
    allows the visible stretches at start and end to be empty.

    ``documents``: (document starts, offsets) of the rows; a span that crosses a start is cut in two there. Output:
    ``starts`` and ``lengths``, int32, the pieces of all rows; and ``pieces``, ``(n,)`` int64, their number in each row.
    """
    blocks = np.empty((_BLOCKS, 4), np.uint64)
    bits = np.zeros((sizes.max() + 1) // 64 + 1 if len(sizes) else 0, np.uint64)
    most = spans.max() + 1 if len(spans) else 0
    gaps, visible_ends, hidden_ends = np.empty(most, np.uint64), np.empty(most, np.int64), np.empty(most, np.int64)
    cut, out = np.empty(2, np.int64), _0
    for row in range(len(sizes)):
        first_piece, first, size, offset = out, firsts[row], sizes[row], np.int64(0)
        rolled, free = placements[row] == 1, placements[row] == 2
        if spans[row]:
            # Free: one stretch more, and one token more in the first and the last, which may therefore end up empty.
            visible = size - noise[row] + 2 * free
            used = _composition(visible, spans[row] + free, keys[row], 0, blocks, gaps, bits, visible_ends)
            used = _composition(noise[row], spans[row], keys[row], used, blocks, gaps, bits, hidden_ends)
            if rolled:
                # A composition of size + 1 into 2 parts: its first end less 1 is uniform in [0, size).
                _composition(size + 1, 2, keys[row], used, blocks, gaps, bits, cut)
                offset = cut[0] - 1
            border, last_border = documents[1][row], documents[1][row + 1]
            # Rolled: first the spans that were rotated past the end of the row, then the others.
            for shift in range(offset - size if offset else 0, offset + 1, size):
                ends = visible_ends, hidden_ends, spans[row], first + shift - free
                window = first, first + size
                out, border = _write_pieces(ends, window, documents[0], border, last_border, starts, lengths, out)
        pieces[row] = out - first_piece


@compiled(small=True)
def _write_pieces(
    ends: tuple,
    window: tuple,
    borders: np.ndarray,
    border: int,
    last_border: int,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.uint64,
) -> tuple[np.uint64, int]:
    """Write the spans that are in a window of the row after a shift, cut at document starts.

    ``window``: its first token and the stop. ``ends``: ends of the visible and of the hidden stretches, number of
    hidden stretches, and the shift. ``border``, ``last_border``: ``borders[border:last_border]`` are the row's starts
    that may still cut a span. Returns ``out`` and ``border`` after these spans.
    """
    visible_ends, hidden_ends, count, shift = ends
    hidden = 0  # tokens hidden so far
    for i in range(np.uint64(count)):
        start = max(visible_ends[i] + hidden + shift, window[0])
        hidden = hidden_ends[i]
        stop = min(visible_ends[i] + hidden + shift, window[1])
        if stop <= start:
            continue
        while border < last_border and borders[border] < stop:
            if borders[border] > start:
                starts[out], lengths[out] = start, borders[border] - start
                start = int(borders[border])
                out += _1
            border += 1
        starts[out], lengths[out] = start, stop - start
        out += _1
    return out, border


@compiled(small=True)
def _composition(
    items: int,
    parts: int,
    key: np.ndarray,
    used: int,
    blocks: np.ndarray,
    gaps: np.ndarray,
    bits: np.ndarray,
    ends: np.ndarray,
) -> int:
    """Draw a composition of ``items`` into ``parts`` stretches, write their ends, and return the draws used so far.

    ``blocks``: ``(_BLOCKS, 4)`` uint64, the generator's blocks that contain draw number ``used``. ``gaps``: scratch of
    uint64 for ``parts``.
    """
    least, count = np.uint64(items - parts), np.uint64(parts - 1)
    used = _draw_up_to(least, count, key, used, blocks, gaps)
    for i in range(count):
        gap = gaps[i]
        taken = bits[gap >> _6] >> (gap & _63) & _1
        gap += (least + i - gap) * taken
        bits[gap >> _6] |= _1 << (gap & _63)
    part = _0
    for i in range(np.uint64((items >> 6) + 1)):
        word, bits[i] = bits[i], _0
        first_end = (i << _6) + _1
        while word:
            ends[part] = first_end + trailing_zeros(word)
            word &= word - _1
            part += _1
    ends[part] = items
    return used


@compiled(small=True)
def _draw_up_to(
    least: np.uint64, count: np.uint64, key: np.ndarray, used: int, blocks: np.ndarray, drawn: np.ndarray
) -> int:
    """Draw uniform integers from 0 to ``least``, ``least + 1`` ... and return the number of draws used so far.

    Source: Lemire 2019, "Fast random integer generation in an interval", section 4. Rejections are rare, so a whole
    stretch is first drawn in vector code as if there were none.
    """
    stream = blocks.reshape(-1).view(np.uint32)  # low half first, as numpy takes them
    done = 0
    if count > 0 and least == 0:  # only one value is possible, and numpy takes no draw for it
        drawn[0] = _0
        done = 1
    while done < count:
        at = used % len(stream)
        if at == 0:
            philox_blocks(key[0], key[1], np.uint64(used // 8 + 1), blocks)
        size, bound, certain = min(int(count) - done, len(stream) - at), least + np.uint64(done + 1), True
        first, place = np.uint64(at), np.uint64(done)
        for i in range(np.uint64(size)):
            product = np.uint64(stream[first + i]) * (bound + i)
            drawn[place + i] = product >> _32
            certain &= bool(product & _LOW >= bound + i)
        if certain:
            done, used = done + size, used + size
        else:
            product = np.uint64(stream[first]) * bound
            done += int(product & _LOW >= (_TWO_32 - bound) % bound)
            used += 1
    return used


def count_hidden_tokens(tokens: np.ndarray, density: np.ndarray | float) -> np.ndarray:
    """Count the tokens to hide in rows of ``tokens`` tokens, ``(n,)`` int64: at least 1, never all; 0 of a single."""
    return np.minimum(np.maximum(np.rint(tokens * density), tokens > 0), np.maximum(tokens - 1, 0)).astype(np.int64)


def count_spans(tokens: np.ndarray, noise: np.ndarray, means: np.ndarray | float, free: bool = False) -> np.ndarray:
    """Count the spans of ``noise`` hidden tokens, ``(n,)`` int64: at most as many as visible tokens can separate.

    ``free``: True if a row may start and end with a span, which allows one more.
    """
    spans = np.maximum(np.rint(noise / means), noise > 0)
    return np.minimum(spans, tokens - noise + free).astype(np.int64)


class SpanDraws(NamedTuple):
    """The numbers that the spans of n rows are drawn by; ``(n,)`` int64 but for ``keys``.

    Attributes:
        keys: ``(n, 2)`` uint64, one generator per row.
        sizes, firsts: number of tokens that spans are drawn among, and the first of them in the row.
        noise, spans: tokens to hide, and number of spans, as ``draw_spans`` takes them.
        placements: index in ``PLACEMENTS``.
        markers: maximum number of spans with a marker, the first ones, after spans are cut at documents.
        around: positions of a source beside text and markers.
        ends: the same of a target that is not empty.
    """

    keys: np.ndarray
    sizes: np.ndarray
    noise: np.ndarray
    spans: np.ndarray
    firsts: np.ndarray
    placements: np.ndarray
    markers: np.ndarray
    around: np.ndarray
    ends: np.ndarray

    @classmethod
    def join(cls, parts: Sequence[SpanDraws], order: np.ndarray) -> SpanDraws:
        """Put the rows of all ``parts``, one after another, at the places ``order``, ``(n,)``."""
        back = np.argsort(order)
        return cls(*(np.concatenate(column)[back] for column in zip(*parts, strict=True)))


def draw_masks(batch: SequenceBatch, draws: SpanDraws) -> MaskBatch:
    """Draw the spans of n rows; all of them are hidden."""
    tokens, parts, noise = batch.tokens.lengths, batch.document_starts.lengths, draws.noise
    # Every document boundary may cut a span, and so may the end of a rotated row.
    starts, lengths = np.empty((2, int((draws.spans + parts + 1).sum())), np.int32)
    pieces = np.empty(len(batch), np.int64)
    draw_spans(*draws[:6], columns(batch.document_starts), starts, lengths, pieces)
    marked = np.minimum(pieces, draws.markers)
    spans = Ragged.from_lengths(starts[: pieces.sum()], pieces)
    flags = np.full(len(spans.values), IN_SOURCE | IN_TARGET, np.uint8)
    if (marked < pieces).any():
        flags[np.arange(len(flags)) >= np.repeat(spans.offsets[:-1] + marked, pieces)] = IN_TARGET
    return MaskBatch(
        batch.sequence_ids,
        spans,
        Ragged(lengths[: len(flags)], spans.offsets),
        Ragged(flags, spans.offsets),
        source_lengths=(tokens - noise + marked + draws.around).astype(np.int32),
        target_lengths=np.where(noise > 0, noise + marked + draws.ends, 0).astype(np.int32),
    )
