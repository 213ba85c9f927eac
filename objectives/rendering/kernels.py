"""Compiled kernels of rendering: measuring rows, filling rows, and hiding single tokens.

Columns come as tuples of read-only arrays, offsets last (``rendering.columns``): tokens, document starts, spans
(starts, lengths, flags), replacements.
"""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE

NONE = -1  # no such token

PARTS, PLACES, BORDER, CONTRADICTION, UNALIGNED = 1, 2, 3, 4, 5  # faults of a row


@compiled(small=True)
def measure(tokens: tuple, documents: tuple, spans: tuple, aligned: bool, counts: np.ndarray) -> None:
    """Measure each row, without the tokens around its text.

    Args:
        aligned: every token keeps its position, so a span is exactly one of marked, visible and replaced.
        counts: output, ``(6, B)`` int32: fault (0 = none), markers in the source, source positions, text tokens in the
            target, marked spans in the target, tokens to be replaced.
    """
    offsets = tokens[1]
    starts, lengths, flags, span_offsets = spans
    for row in range(counts.shape[1]):
        size = offsets[row + 1] - offsets[row]
        border, last_border = documents[1][row], documents[1][row + 1]
        fault, markers, source, hidden, hidden_markers, replaced, position = 0, 0, size, 0, 0, 0, 0
        for i in range(span_offsets[row], span_offsets[row + 1]):
            start, length, flag = int(starts[i]), int(lengths[i]), flags[i]
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
    source: np.ndarray,
    target: np.ndarray,
    segments: np.ndarray,
) -> None:
    """Fill rows that have passed ``measure``.

    Args:
        markers: ``(most,)`` int32, id of a row's marker 0, 1, ...
        target_marked: whether markers also stand in the target.
        frame: ids of padding, begin, end, and before, between and after documents; ``NONE`` for none.
        source, target, segments: output, (B, S), (B, T) and, unless it is empty, (B, S) int32; all positions are set.
    """
    # Longer than other functions: in plain Python, which small batches run as, a call of a kernel per token costs more.
    text, borders = tokens[0], documents[0]
    starts, lengths, flags, span_offsets = spans
    pad, begin, end, before, between, after = frame
    shown, hidden = source.reshape(-1), target.reshape(-1)  # flat: views for every row and copy would cost more
    for row in range(len(source)):
        first_token, last_token = tokens[1][row], tokens[1][row + 1]
        first_span, last_span = span_offsets[row], span_offsets[row + 1]
        first_border, last_border = documents[1][row], documents[1][row + 1]
        row_start, row_stop = row * source.shape[1], (row + 1) * source.shape[1]
        hidden_start, hidden_stop = row * target.shape[1], (row + 1) * target.shape[1]
        position, at, hidden_at = first_token, row_start, hidden_start
        border, replaced, marker = first_border, replacements[1][row], 0
        labelled = 0  # source positions whose part is written
        if begin != NONE:
            shown[at] = begin
            at += 1
        # One iteration per span, which also copies the text before it; the last iteration copies the rest.
        for i in range(first_span, last_span + 1):
            start, flag = last_token, np.uint8(0)
            if i < last_span:
                start, flag = first_token + starts[i], flags[i]
            while border < last_border and first_token + borders[border] <= start:
                if border > first_border:
                    at = _copy(text, position, first_token + borders[border], shown, at)
                    position = first_token + borders[border]
                    if after != NONE:
                        shown[at] = after
                        at += 1
                    if between != NONE:
                        shown[at] = between
                        at += 1
                    if len(segments):
                        segments[row, labelled : at - row_start] = border - first_border - 1
                        labelled = at - row_start
                if before != NONE:
                    shown[at] = before
                    at += 1
                border += 1
            at = _copy(text, position, start, shown, at)
            position = start
            if flag & IN_TARGET:
                if hidden_at == hidden_start and begin != NONE:
                    hidden[hidden_at] = begin
                    hidden_at += 1
                if target_marked and flag & IN_SOURCE:
                    hidden[hidden_at] = markers[marker]
                    hidden_at += 1
                hidden_at = _copy(text, start, start + lengths[i], hidden, hidden_at)
            if flag & IN_SOURCE:
                shown[at] = markers[marker]
                at += 1
                marker += 1
            if flag & REPLACED:
                at = _copy(replacements[0], replaced, replaced + lengths[i], shown, at)
                replaced += lengths[i]
            # The text of a candidate or a visible span is copied with the text that follows.
            if flag != 0 and not flag & VISIBLE:
                position += lengths[i]
        if after != NONE and last_border > first_border:
            shown[at] = after
            at += 1
        if end != NONE:
            shown[at] = end
            at += 1
            if hidden_at > hidden_start:
                hidden[hidden_at] = end
                hidden_at += 1
        shown[at:row_stop] = pad
        hidden[hidden_at:hidden_stop] = pad
        if len(segments):
            segments[row, labelled : at - row_start] = max(last_border - first_border - 1, 0)
            segments[row, at - row_start :] = -1


@compiled
def hide_tokens(
    offsets: np.ndarray, spans: tuple, replacements: np.ndarray, mask: int, shown: np.ndarray, labels: np.ndarray
) -> None:
    """Replace hidden tokens by ``mask`` or replacements, one for one, and write the original tokens as labels.

    Args:
        offsets: ``(B + 1,)`` int64, of the rows in ``shown`` and ``labels``.
        replacements: ids of all rows, concatenated.
        shown: ``(tokens,)`` int32, the text; overwritten with the visible tokens.
        labels: output, ``(tokens,)`` int32; the token at every position that is in the target.
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

    Stretches are a few tokens long, so whole vectors are moved while there is room. ``out`` is filled from left to
    right, so later tokens overwrite the excess.
    """
    size = stop - start
    rounded = (size + 31) & ~31
    if start + rounded > len(text) or at + rounded > len(out):
        rounded = size
    # Unsigned indices need no check for negative ones, and the loop becomes vector moves.
    first, place = np.uint64(start), np.uint64(at)
    for i in range(np.uint64(rounded)):
        out[place + i] = text[first + i]
    return at + size
