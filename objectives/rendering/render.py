"""Rendering: (corpus rows, mask rows) -> encoder and decoder inputs, in one compiled pass.

There are three renderings, each with the special tokens of a ``Layout``:

- sentinels (T5: Raffel et al. 2020, section 3.1.4 and figure 2), numbered from 0 in every row:
  ``text <sentinel-0> text <sentinel-1> ...`` and ``<sentinel-0> hidden <sentinel-1> hidden ...``, without a final one;
- masked (PEGASUS: Zhang et al. 2020, section 3): ``text <sent-mask> text <sent-mask> ...`` and ``hidden hidden ...``;
- labels, for an encoder alone (BERT: Devlin et al. 2019, section 3.1): ``text <mask> <mask> text ...``, with the hidden
  tokens as labels at the same positions.

Replaced spans show their replacements; candidates and visible spans show their text. A row without hidden text has an
empty target, without begin and end. No span may cross the boundary between two parts, so separators are never hidden.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from corpora.errors import FarspanError
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged, read_only
from objectives.api.examples import IGNORED, Examples
from objectives.api.masks import MaskBatch
from objectives.api.special_tokens import PAD, SpecialTokens
from objectives.rendering.kernels import (
    BORDER,
    CONTRADICTION,
    NONE,
    PARTS,
    PLACES,
    UNALIGNED,
    fill,
    hide_tokens,
    measure,
)
from objectives.rendering.layout import Layout

_Arrays: TypeAlias = tuple[np.ndarray, ...]

_FAULTS = {
    PARTS: "parts begin outside of the text or in descending order",
    PLACES: "spans overlap, are empty, descend, or lie outside of the text",
    BORDER: "a span crosses the border between two documents; cut it there",
    CONTRADICTION: "a span is to be replaced (bit 3) and also marked or left visible; choose one",
    UNALIGNED: "a span with flags is not just one of marked, visible and replaced, so no label stands in its place",
}


class _Rows(NamedTuple):
    """Columns of corpus and mask rows as kernels take them, offsets last."""

    tokens: _Arrays
    documents: _Arrays
    spans: _Arrays  # starts, lengths, flags
    replacements: _Arrays


def render_sentinels(
    batch: SequenceBatch,
    masks: MaskBatch,
    special: SpecialTokens,
    layout: Layout,
    *,
    heads: np.ndarray | None = None,
    segment_ids: bool = False,
) -> Examples:
    """Render rows with a numbered sentinel for each span that is marked in the source, in source and target.

    ``heads``: ``(B,)`` int32, id before each source, -1 for none. ``segment_ids``: also return the part of each source
    position: tokens between two parts belong to the first of them, head and begin to the first part of the row, and end
    to the last.
    """
    rows = _rows(batch, masks)
    counts = _measure(batch, rows)
    markers, sentinels = counts[1], special.sentinels
    if (most := int(markers.max(initial=0))) > len(sentinels):
        raise FarspanError(
            f"sequence {_hex(batch, int(markers.argmax()))} needs {most} sentinels, the special tokens hold "
            f"{len(sentinels)}; reserve at least {most}, or hide fewer spans"
        )
    lengths = _lengths(batch, counts, layout, sentinels=True)
    if heads is not None:
        lengths = lengths[0] + (heads != NONE), lengths[1]
    source, target, segments = _fill(rows, _frame(special, layout), sentinels, True, lengths, segment_ids, heads)
    return Examples(masks.sequence_ids, source, lengths[0], target, lengths[1], segment_ids=segments)


def render_masked(
    batch: SequenceBatch,
    masks: MaskBatch,
    special: SpecialTokens,
    layout: Layout,
    *,
    mask: str,
    segment_ids: bool = False,
) -> Examples:
    """Render rows with the same token for each span that is marked in the source, including adjacent spans.

    The target is the text of its spans, with nothing between them.
    """
    rows = _rows(batch, masks)
    counts = _measure(batch, rows)
    (markers,) = read_only(np.full(counts[1].max(initial=0), _id(special, "mask", mask), np.int32))
    lengths = _lengths(batch, counts, layout, sentinels=False)
    source, target, segments = _fill(rows, _frame(special, layout), markers, False, lengths, segment_ids)
    return Examples(masks.sequence_ids, source, lengths[0], target, lengths[1], segment_ids=segments)


def render_labels(
    batch: SequenceBatch,
    masks: MaskBatch,
    special: SpecialTokens,
    layout: Layout,
    *,
    mask: str,
    segment_ids: bool = False,
) -> Examples:
    """Render rows for an encoder alone: one mask token for every token of a marked span, and labels.

    Returns ``Examples`` with ``source_ids`` and ``labels``, ``(B, S)`` int32. A label is the text's token if its span
    is in the target, else ``IGNORED``. ``target_ids`` is ``(B, 0)``.
    """
    rows = _rows(batch, masks)
    _measure(batch, rows, aligned=True)
    text, offsets = rows.tokens
    shown, targets = text.astype(np.int32), np.full(len(text), IGNORED, np.int32)
    hide_tokens(offsets, rows.spans, rows.replacements[0], _id(special, "mask", mask), shown, targets)
    lengths = (_with_layout(batch, layout, batch.tokens.lengths), np.zeros(len(batch), np.int32))
    frame = _frame(special, layout)
    ignored = tuple(NONE if token == NONE else IGNORED for token in frame)
    plain = rows._replace(tokens=read_only(shown, offsets), spans=_nothing(len(batch), np.int32, np.int32, np.uint8))
    source, target, segments = _fill(plain, frame, special.sentinels, False, lengths, segment_ids)
    plain = plain._replace(tokens=read_only(targets, offsets))
    labels, _, _ = _fill(plain, ignored, special.sentinels, False, lengths, False)
    return Examples(masks.sequence_ids, source, lengths[0], target, lengths[1], labels, segments)


def rendered_lengths(
    batch: SequenceBatch, masks: MaskBatch, layout: Layout, *, sentinels: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the source and target lengths, ``(B,)`` int32 each, of ``render_sentinels`` or ``render_masked``."""
    return _lengths(batch, _measure(batch, _rows(batch, masks)), layout, sentinels)


def columns(*lists: Ragged) -> _Arrays:
    """Return the values of each list column and their common offsets, as kernels take them.

    The views are read-only, so that arrays from memory maps and from numpy use the same compiled kernel.
    """
    compact = [column.compact() for column in lists]
    offsets = compact[0].offsets
    if any(column.offsets is not offsets and not np.array_equal(column.offsets, offsets) for column in compact[1:]):
        raise FarspanError("list columns of spans have rows of different lengths; the mask set is damaged")
    return read_only(*(column.values for column in compact), offsets)


def _rows(batch: SequenceBatch, masks: MaskBatch) -> _Rows:
    """Return the columns of corpus and mask rows, after checking that they are of the same sequences."""
    ids, others = batch.sequence_ids, masks.sequence_ids
    if ids is not others and not np.array_equal(ids, others):
        if len(batch) != len(masks):
            raise FarspanError(f"{len(batch)} corpus rows cannot be shown with {len(masks)} mask rows")
        row = int(np.flatnonzero((ids != others).any(axis=1))[0])
        raise FarspanError(
            f"row {row} is sequence {_hex(batch, row)} in the corpus, {others[row].tobytes().hex()} in the "
            f"mask set; use a mask set made for this corpus"
        )
    spans = columns(masks.span_starts, masks.span_lengths, masks.span_flags)
    replacements = _nothing(len(batch), np.int32) if masks.replacements is None else columns(masks.replacements)
    return _Rows(columns(batch.tokens), columns(batch.document_starts), spans, replacements)


def _nothing(rows: int, *kinds: type) -> _Arrays:
    """Make columns of empty rows."""
    return read_only(*(np.empty(0, kind) for kind in kinds), np.zeros(rows + 1, np.int64))


def _measure(batch: SequenceBatch, rows: _Rows, aligned: bool = False) -> np.ndarray:
    """Compute the counts of ``measure``, ``(6, B)`` int32; raise an error if a row has a fault."""
    counts = np.zeros((6, len(batch)), np.int32)
    measure(rows.tokens, rows.documents, rows.spans, aligned, counts)
    faults, replaced, available = counts[0], counts[5], np.diff(rows.replacements[1])
    if faults.any():
        row = int(np.flatnonzero(faults)[0])
        raise FarspanError(f"row {row}, sequence {_hex(batch, row)}: {_FAULTS[int(faults[row])]}")
    if not np.array_equal(replaced, available):
        row = int(np.flatnonzero(replaced != available)[0])
        raise FarspanError(
            f"row {row}, sequence {_hex(batch, row)}: {available[row]} replacements for {replaced[row]} tokens to be "
            "replaced (bit 3); the mask set is damaged"
        )
    return counts


def _lengths(
    batch: SequenceBatch, counts: np.ndarray, layout: Layout, sentinels: bool
) -> tuple[np.ndarray, np.ndarray]:
    _, _, source, hidden, hidden_markers, _ = counts
    target = np.where(hidden > 0, hidden + layout.ends + sentinels * hidden_markers, 0)
    return _with_layout(batch, layout, source), target.astype(np.int32)


def _with_layout(batch: SequenceBatch, layout: Layout, source: np.ndarray) -> np.ndarray:
    """Add the positions of the layout to ``source``, ``(B,)`` int32."""
    return (source + layout.around(batch.document_starts.lengths)).astype(np.int32)


def _frame(special: SpecialTokens, layout: Layout) -> tuple[int, ...]:
    """Return the ``frame`` argument of ``fill``: padding, begin, end, before, between, after."""
    roles = ("begin", "end", "before", "between", "after")
    return (special[PAD], *(_id(special, role, getattr(layout, role)) for role in roles))


def _id(special: SpecialTokens, role: str, name: str | None) -> int:
    if name is None:
        return NONE
    if name not in special.ids:
        raise FarspanError(f"{role} {name!r} is none of the special tokens: {', '.join(list(special.ids)[:12])}")
    return special[name]


def _fill(
    rows: _Rows,
    frame: tuple[int, ...],
    markers: np.ndarray,
    target_marked: bool,
    lengths: tuple[np.ndarray, np.ndarray],
    segment_ids: bool,
    heads: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Fill source ``(B, S)``, target ``(B, T)`` and, if requested, segments ``(B, S)``, all int32."""
    count = len(rows.tokens[-1]) - 1
    source, target = (np.empty((count, side.max(initial=0)), np.int32) for side in lengths)
    segments = np.empty_like(source) if segment_ids else np.empty((0, 0), np.int32)
    heads = np.full(count, NONE, np.int32) if heads is None else heads
    fill(*rows, markers, target_marked, frame, heads, source, target, segments)
    return source, target, segments if segment_ids else None


def _hex(batch: SequenceBatch, row: int) -> str:
    return batch.sequence_id(row).hex()
