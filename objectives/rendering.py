"""Rendering: (corpus rows, mask rows) -> what encoder and decoder see, in one compiled pass.

Source: ``[begin] text <sentinel-0> text [separator] text <sentinel-1> ... [end]``;
target: ``[begin] <sentinel-0> hidden <sentinel-1> hidden ... [end]``, without a closing sentinel
(T5: Raffel et al. 2020, section 3.1.4 and figure 2). A row with nothing in its target has an empty target.

Sentinels are numbered from 0 in every row. A separator stands before every part but the row's first. No span may cross
the border between two parts, so separators are never hidden.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numba
import numpy as np

from corpora.errors import FarspanError
from corpora.ragged import Ragged
from corpora.sequences import SequenceBatch
from objectives.examples import Examples
from objectives.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch
from objectives.special_tokens import BEGIN, END, PAD, SpecialTokens

_NONE = -1  # no such token
_Arrays: TypeAlias = tuple[np.ndarray, ...]

_FAULTS = {
    1: "parts begin outside of the text or in descending order",
    2: "spans overlap, are empty, descend, or lie outside of the text",
    3: "a span crosses the border between two documents; cut it there",
    4: "spans to be replaced (bit 3) cannot be shown with sentinels; their objective has to bring its own rendering",
}


def render_sentinels(
    batch: SequenceBatch,
    masks: MaskBatch,
    special: SpecialTokens,
    *,
    begin: bool,
    end: bool,
    separator: str | None,
    segment_ids: bool = False,
    source_width: int | None = None,
    target_width: int | None = None,
    pad_to_multiple: int = 1,
) -> Examples:
    """Render rows with one sentinel for every span that is marked in the source.

    Args:
        batch: B corpus rows.
        masks: B mask rows of the same sequences. Spans without flags (candidates) stay as they are.
        special: where ids come from: padding, begin, end, separator, sentinels.
        begin: ``<bos>`` first, in source and target.
        end: ``<eos>`` last, in source and target.
        separator: name of the token between two parts, or None.
        segment_ids: also number the part that each source position belongs to; a separator belongs to the part before
            it, begin to the first part and end to the last.
        source_width, target_width: S and T; the longest row when None.
        pad_to_multiple: S and T, where not given, are rounded up to a multiple of this.

    Returns:
        ``Examples`` with ``source_ids (B, S)`` and ``target_ids (B, T)`` int32.

    Raises:
        FarspanError: rows of different sequences, spans that cannot be shown, too few sentinels, a width too small.
    """
    tokens, documents, spans = _columns(batch, masks)
    markers, source_lengths, target_lengths = _measured(batch, tokens, documents, spans, begin, end, separator)
    sentinels = special.sentinels
    if len(markers) and (most := int(markers.max())) > len(sentinels):
        raise FarspanError(
            f"sequence {_hex(batch, int(markers.argmax()))} needs {most} sentinels, the special tokens hold "
            f"{len(sentinels)}; reserve at least {most}, or hide fewer spans"
        )
    width = _width("source", source_lengths, source_width, pad_to_multiple)
    source = np.empty((len(batch), width), np.int32)
    target = np.empty((len(batch), _width("target", target_lengths, target_width, pad_to_multiple)), np.int32)
    segments = np.empty((len(batch), width) if segment_ids else (0, 0), np.int32)
    frame = (
        special[PAD],
        special[BEGIN] if begin else _NONE,
        special[END] if end else _NONE,
        _separator_id(special, separator),
    )
    _render(tokens, documents, spans, sentinels, frame, source, target, segments)
    return Examples(
        masks.sequence_ids,
        source,
        source_lengths,
        target,
        target_lengths,
        segment_ids=segments if segment_ids else None,
    )


def rendered_lengths(
    batch: SequenceBatch, masks: MaskBatch, *, begin: bool, end: bool, separator: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """Lengths that ``render_sentinels`` gives: source and target, each ``(B,)`` int32.

    Raises:
        FarspanError: rows of different sequences, or spans that cannot be shown.
    """
    return _measured(batch, *_columns(batch, masks), begin, end, separator)[1:]


def nothing_hidden(batch: SequenceBatch, *, begin: bool, end: bool, separator: str | None) -> MaskBatch:
    """Mask rows without spans: rendered, they give the plain text with its separators, and an empty target."""
    offsets, zeros = np.zeros(len(batch) + 1, np.int64), np.zeros(len(batch), np.int32)
    places, flags = Ragged(np.empty(0, np.int32), offsets), Ragged(np.empty(0, np.uint8), offsets)
    masks = MaskBatch(batch.sequence_ids, places, places, flags, source_lengths=zeros, target_lengths=zeros)
    source, target = rendered_lengths(batch, masks, begin=begin, end=end, separator=separator)
    return replace(masks, source_lengths=source, target_lengths=target)


def columns(*lists: Ragged) -> _Arrays:
    """Values of each list column and the offsets they share, as kernels take them: a tuple of read-only views.

    Read-only, so that arrays from memory maps and from numpy run the same compiled kernel.

    Raises:
        FarspanError: the columns have rows of different lengths.
    """
    compact = [column.compact() for column in lists]
    if any(not np.array_equal(column.offsets, compact[0].offsets) for column in compact[1:]):
        raise FarspanError("list columns of spans have rows of different lengths; the mask set is damaged")
    views = tuple(array.view() for array in (*(column.values for column in compact), compact[0].offsets))
    for view in views:
        view.flags.writeable = False
    return views


def _columns(batch: SequenceBatch, masks: MaskBatch) -> tuple[_Arrays, _Arrays, _Arrays]:
    """(tokens, offsets), (document starts, offsets), (span starts, lengths, flags, offsets) of the same sequences."""
    if not np.array_equal(batch.sequence_ids, masks.sequence_ids):
        if len(batch) != len(masks):
            raise FarspanError(f"{len(batch)} corpus rows cannot be shown with {len(masks)} mask rows")
        row = int(np.flatnonzero((batch.sequence_ids != masks.sequence_ids).any(axis=1))[0])
        raise FarspanError(
            f"row {row} is sequence {_hex(batch, row)} in the corpus, {masks.sequence_ids[row].tobytes().hex()} in the "
            f"mask set; use a mask set made for this corpus"
        )
    return (
        columns(batch.tokens),
        columns(batch.document_starts),
        columns(masks.span_starts, masks.span_lengths, masks.span_flags),
    )


def _measured(
    batch: SequenceBatch,
    tokens: _Arrays,
    documents: _Arrays,
    spans: _Arrays,
    begin: bool,
    end: bool,
    separator: str | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check the rows; sentinels, source length and target length of each, ``(B,)`` int32."""
    counts = np.zeros((5, len(batch)), np.int32)
    _measure(tokens, documents, spans, counts)
    faults, markers, source, hidden, hidden_spans = counts
    if faults.any():
        row = int(np.flatnonzero(faults)[0])
        raise FarspanError(f"row {row}, sequence {_hex(batch, row)}: {_FAULTS[int(faults[row])]}")
    ends = int(begin) + int(end)
    if separator is not None:
        source = source + np.maximum(batch.document_starts.lengths - 1, 0).astype(np.int32)
    return markers, source + np.int32(ends), hidden + np.where(hidden_spans > 0, ends, 0).astype(np.int32)


def _hex(batch: SequenceBatch, row: int) -> str:
    return batch.sequence_id(row).hex()


def _separator_id(special: SpecialTokens, separator: str | None) -> int:
    if separator is None:
        return _NONE
    if separator not in special.ids:
        raise FarspanError(
            f"separator {separator!r} is none of the special tokens: {', '.join(list(special.ids)[:12])}"
        )
    return special[separator]


def _width(side: str, lengths: np.ndarray, asked: int | None, multiple: int) -> int:
    longest = int(lengths.max(initial=0))
    if asked is None:
        return -(-longest // multiple) * multiple
    if longest > asked:
        raise FarspanError(f"{side} width {asked} is too small for a row of {longest} positions; raise it to {longest}")
    return asked


@numba.njit(cache=True)
def _measure(tokens: tuple, documents: tuple, spans: tuple, counts: np.ndarray) -> None:
    """Per row: fault (0 = none), sentinels, source and target positions without begin, end and separators."""
    offsets = tokens[1]
    starts, lengths, flags, span_offsets = spans
    for row in range(counts.shape[1]):
        size = offsets[row + 1] - offsets[row]
        border, last_border = documents[1][row], documents[1][row + 1]
        for i in range(border, last_border):
            previous = documents[0][i - 1] if i > border else 0
            if documents[0][i] < previous or documents[0][i] > size or (i == border and documents[0][i] != 0):
                counts[0, row] = 1
        fault, markers, visible, hidden, hidden_spans, position = 0, 0, size, 0, 0, 0
        for i in range(span_offsets[row], span_offsets[row + 1]):
            start, length, flag = int(starts[i]), int(lengths[i]), flags[i]
            if start < position or length <= 0 or start + length > size:
                fault = 2
                break
            position = start + length
            while border < last_border and documents[0][border] <= start:
                border += 1
            if flag != 0 and border < last_border and documents[0][border] < position:
                fault = 3
            if flag & REPLACED:
                fault = 4
            if flag & IN_SOURCE:
                markers += 1
            if flag != 0 and not flag & VISIBLE:
                visible -= length
            if flag & IN_TARGET:
                hidden_spans += 1
                hidden += length + (flag & IN_SOURCE)
        if counts[0, row] == 0:
            counts[0, row] = fault
        counts[1, row], counts[2, row] = markers, visible + markers
        counts[3, row], counts[4, row] = hidden, hidden_spans


@numba.njit(cache=True)
def _render(
    tokens: tuple,
    documents: tuple,
    spans: tuple,
    sentinels: np.ndarray,
    frame: tuple,
    source: np.ndarray,
    target: np.ndarray,
    segments: np.ndarray,
) -> None:
    """Fill source (B, S), target (B, T) and, unless it is empty, segments (B, S); rows have passed ``_measure``."""
    text, borders = tokens[0], documents[0]
    starts, lengths, flags, span_offsets = spans
    pad, begin, end, separator = frame
    shown, hidden = source.reshape(-1), target.reshape(-1)  # flat: a view for every row and copy would cost more
    for row in range(len(source)):
        first_token, last_token = tokens[1][row], tokens[1][row + 1]
        first_span, last_span = span_offsets[row], span_offsets[row + 1]
        border, last_border = documents[1][row] + 1, documents[1][row + 1]
        row_start, row_stop = row * source.shape[1], (row + 1) * source.shape[1]
        hidden_start, hidden_stop = row * target.shape[1], (row + 1) * target.shape[1]
        position, at, hidden_at = first_token, row_start, hidden_start
        marker, part, labelled = 0, 0, 0  # labelled: source positions whose part is written
        if begin >= 0:
            shown[at] = begin
            at += 1
        # One turn a span, which also copies the text before it; the last turn copies what is left.
        for i in range(first_span, last_span + 1):
            start, flag = last_token, np.uint8(0)
            if i < last_span:
                start, flag = first_token + starts[i], flags[i]
            while border < last_border and first_token + borders[border] <= start:
                at = _copy(text, position, first_token + borders[border], shown, at)
                position = first_token + borders[border]
                border += 1
                if separator >= 0:
                    shown[at] = separator
                    at += 1
                if len(segments):
                    segments[row, labelled : at - row_start] = part
                    labelled = at - row_start
                part += 1
            at = _copy(text, position, start, shown, at)
            position = start
            if flag & IN_TARGET:
                if hidden_at == hidden_start and begin >= 0:
                    hidden[hidden_at] = begin
                    hidden_at += 1
                if flag & IN_SOURCE:
                    hidden[hidden_at] = sentinels[marker]
                    hidden_at += 1
                hidden_at = _copy(text, start, start + lengths[i], hidden, hidden_at)
            if flag & IN_SOURCE:
                shown[at] = sentinels[marker]
                at += 1
                marker += 1
            # The text of a candidate or a visible span is copied with what follows.
            if flag != 0 and not flag & VISIBLE:
                position += lengths[i]
        if end >= 0:
            shown[at] = end
            at += 1
            if hidden_at > hidden_start:
                hidden[hidden_at] = end
                hidden_at += 1
        shown[at:row_stop] = pad
        hidden[hidden_at:hidden_stop] = pad
        if len(segments):
            segments[row, labelled : at - row_start] = part
            segments[row, at - row_start :] = -1


@numba.njit(inline="always")
def _copy(text: np.ndarray, start: int, stop: int, out: np.ndarray, at: int) -> int:
    """Copy ``text[start:stop]`` to ``out[at:]``; the place behind it.

    Stretches are a few tokens long, so whole vectors are moved while there is room: ``out`` is filled from left to
    right, and what is written too much is replaced by what comes behind.
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
