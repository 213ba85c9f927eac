"""Compiled kernels of rendering: measuring rows, filling rows, and hiding single tokens.

Columns are passed as tuples of read-only arrays, offsets last (``rendering.columns``): tokens, document starts, spans
(starts, lengths, flags), replacements.
"""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE

NONE = -1  # id of an absent special token

PARTS, PLACES, BORDER, CONTRADICTION, UNALIGNED = 1, 2, 3, 4, 5  # faults of a row


@compiled(small=True)
def measure(tokens: tuple, documents: tuple, spans: tuple, aligned: bool, counts: np.ndarray) -> None:
    """Measure each row, without the tokens around its text.

    ``aligned``: True if every token keeps its position, so that a span is exactly one of marked, visible and replaced.
    ``counts``: output, ``(6, B)`` int32: fault (0 = none), markers in the source, source positions, text tokens in the
    target, marked spans in the target, tokens to be replaced.
    """
    offsets = tokens[1]
    starts, lengths, flags, span_offsets = spans
    for row in range(counts.shape[1]):
        size = offsets[row + 1] - offsets[row]
        border, last_border = documents[1][row], documents[1][row + 1]
        fault, markers, source, hidden, hidden_markers, replaced, position = 0, 0, size, 0, 0, 0, 0
        for i in range(np.uint64(span_offsets[row]), np.uint64(span_offsets[row + 1])):  # unsigned: see ``_copy``
            start, length, flag = int(starts[i]), int(lengths[i]), int(flags[i])
            if start < position or length <= 0 or start + length > size:
                fault = PLACES
                break
            position = start + length
            while border < last_border and documents[0][border] <= start:
                border += 1
            if flag != 0 and border < last_border and documents[0][border] < position:
                fault = BORDER
            marked, visible, exchanged = flag & IN_SOURCE != 0, flag & VISIBLE != 0, flag & REPLACED != 0
            if exchanged and (marked or visible):
                fault = CONTRADICTION
            if aligned and flag != 0 and int(marked) + int(visible) + int(exchanged) != 1:
                fault = UNALIGNED
            if flag != 0 and not visible and not exchanged:
                source -= length
            if marked:
                markers += 1
            if exchanged:
                replaced += length
            if flag & IN_TARGET:
                hidden += length
                hidden_markers += int(marked)
        border = documents[1][row]
        for i in range(border, last_border):
            previous = documents[0][i - 1] if i > border else 0
            if documents[0][i] < previous or documents[0][i] > size or (i == border and documents[0][i] != 0):
                fault = PARTS
        counts[0, row], counts[1, row], counts[2, row] = fault, markers, source + markers
        counts[3, row], counts[4, row], counts[5, row] = hidden, hidden_markers, replaced


@compiled(small=True)
def fill(
    tokens: tuple,
    documents: tuple,
    spans: tuple,
    replacements: tuple,
    markers: np.ndarray,
    target_marked: bool,
    frame: tuple,
    heads: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    segments: np.ndarray,
) -> None:
    """Fill rows that have passed ``measure``.

    ``markers``: ``(most,)`` int32, id of a row's marker 0, 1, ... ``frame``: ids of padding, begin, end, and before,
    between and after documents; ``NONE`` for no token. ``heads``: ``(B,)`` int32, id before each source, or ``NONE``.
    ``source``, ``target``, ``segments``: output, ``(B, S)``, ``(B, T)`` and ``(B, S)`` int32; all positions are set.
    ``segments`` may be empty, and is then not filled.
    """
    columns = tokens, documents, spans, replacements
    # Flat, because ``_copy`` may write beyond a row, into the next one, which is filled afterwards.
    shown, hidden = (source.reshape(-1), segments.reshape(-1)), target.reshape(-1)
    for row in range(len(source)):
        first, stop = row * source.shape[1], (row + 1) * source.shape[1]
        _fill_source(row, columns, markers, frame, heads[row], shown, first, stop)
        first, stop = row * target.shape[1], (row + 1) * target.shape[1]
        _fill_target(row, columns, markers, target_marked, frame, hidden, first, stop)


@compiled(small=True)
def _fill_source(
    row: int, columns: tuple, markers: np.ndarray, frame: tuple, head: int, out: tuple, at: int, stop: int
) -> None:
    """Fill ``out[at:stop]``, the source of a row, and its segments unless that array is empty."""
    (text, token_offsets), (borders, border_offsets), spans, (exchanged, exchanged_offsets) = columns
    starts, lengths, flags, span_offsets = spans
    pad, begin, end, before, between, after = frame
    shown, segments = out
    first_token, last_token = token_offsets[row], token_offsets[row + 1]
    first_border, last_border = border_offsets[row], border_offsets[row + 1]
    last_span = np.uint64(span_offsets[row + 1])
    position, border, replaced, marker = first_token, first_border, exchanged_offsets[row], np.uint64(0)
    labelled = at  # the segments before this position are set
    at = _put(begin, shown, _put(head, shown, at))
    # One iteration per span, which also copies the text before it; the last iteration copies the rest.
    for i in range(np.uint64(span_offsets[row]), last_span + np.uint64(1)):  # unsigned: see ``_copy``
        start, length, flag = last_token, 0, 0
        if i < last_span:
            start, length, flag = first_token + starts[i], int(lengths[i]), int(flags[i])
        while border < last_border and first_token + borders[border] <= start:
            if border > first_border:
                edge = first_token + borders[border]
                at, position = _copy(text, position, edge, shown, at), edge
                at = _put(between, shown, _put(after, shown, at))
                if len(segments):
                    segments[labelled:at] = border - first_border - 1
                    labelled = at
            at = _put(before, shown, at)
            border += 1
        at, position = _copy(text, position, start, shown, at), start
        if flag & IN_SOURCE:
            at, marker = _put(markers[marker], shown, at), marker + np.uint64(1)
        if flag & REPLACED:
            at = _copy(exchanged, replaced, replaced + length, shown, at)
            replaced += length
        # The text of a candidate or a visible span is copied with the text that follows.
        if flag != 0 and not flag & VISIBLE:
            position += length
    at = _put(end, shown, _put(after if last_border > first_border else NONE, shown, at))
    shown[at:stop] = pad
    if len(segments):
        segments[labelled:at] = max(last_border - first_border - 1, 0)
        segments[at:stop] = -1


@compiled(small=True)
def _fill_target(
    row: int, columns: tuple, markers: np.ndarray, marked: bool, frame: tuple, out: np.ndarray, at: int, stop: int
) -> None:
    """Fill ``out[at:stop]`` with a row's target."""
    (text, token_offsets), _, (starts, lengths, flags, offsets), _ = columns
    pad, begin, end = frame[:3]
    first, marker = at, np.uint64(0)
    for i in range(np.uint64(offsets[row]), np.uint64(offsets[row + 1])):
        if flags[i] & IN_TARGET:
            if at == first:
                at = _put(begin, out, at)
            if marked and flags[i] & IN_SOURCE:
                at = _put(markers[marker], out, at)
            start = token_offsets[row] + starts[i]
            at = _copy(text, start, start + lengths[i], out, at)
        if flags[i] & IN_SOURCE:
            marker += np.uint64(1)
    if at > first:
        at = _put(end, out, at)
    out[at:stop] = pad


@compiled
def hide_tokens(
    offsets: np.ndarray, spans: tuple, replacements: np.ndarray, mask: int, shown: np.ndarray, labels: np.ndarray
) -> None:
    """Replace hidden tokens by ``mask`` or replacements, one for one, and write the original tokens as labels.

    ``offsets``: ``(B + 1,)`` int64, of the rows in ``shown`` and ``labels``. ``shown``: ``(tokens,)`` int32, the text;
    overwritten with the source. ``labels``: output, ``(tokens,)`` int32; set at the positions that are in the target.
    """
    starts, lengths, flags, span_offsets = spans
    used = 0
    for row in range(len(offsets) - 1):
        for i in range(span_offsets[row], span_offsets[row + 1]):
            first = offsets[row] + starts[i]
            for place in range(first, first + lengths[i]):
                if flags[i] & IN_TARGET:
                    labels[place] = shown[place]
                if flags[i] & IN_SOURCE:
                    shown[place] = mask
                if flags[i] & REPLACED:
                    shown[place] = replacements[used]
                    used += 1


@compiled(small=True, inline="always")
def _copy(text: np.ndarray, start: int, stop: int, out: np.ndarray, at: int) -> int:
    """Copy ``text[start:stop]`` to ``out[at:]`` and return the position after it.

    Most copies are a few tokens long, so they are rounded up to whole vectors while there is room. ``out`` is filled
    from left to right, so later tokens overwrite the excess.
    """
    size = stop - start
    rounded = (size + 31) & ~31
    if start + rounded > len(text) or at + rounded > len(out):
        rounded = size
    # Unsigned indices need no check for negative ones, so the compiler can vectorise the loop.
    first, place = np.uint64(start), np.uint64(at)
    for i in range(np.uint64(rounded)):
        out[place + i] = text[first + i]
    return at + size


@compiled(small=True, inline="always")
def _put(token: int, out: np.ndarray, at: int) -> int:
    """Write a token to ``out[at]``, unless it is ``NONE``, and return the position after it."""
    if token == NONE:
        return at
    out[np.uint64(at)] = token
    return at + 1
