"""The inverse of rendering, which checks that no text is lost.

It uses only the positions and flags of the mask rows. As a check, it need not be fast.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from objectives.api.examples import IGNORED, Examples
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch
from objectives.api.special_tokens import SpecialTokens
from objectives.rendering.layout import Layout


def reconstruct(
    examples: Examples, masks: MaskBatch, special: SpecialTokens, layout: Layout, *, mask: str | None = None
) -> Ragged:
    """Recover the text of every row, rows of int32, from ``render_sentinels``, or with ``mask``, ``render_masked``."""
    begin, end = layout.begin is not None, layout.end is not None

    def text(row: int) -> np.ndarray:
        # An empty target has neither begin nor end.
        target = examples.target_ids[row, begin : max(examples.target_lengths[row] - end, begin)]
        return _text(_source(examples, special, layout, row)[0], target, masks, row, special, mask)

    return _every_row(examples, text)


def reconstruct_labels(examples: Examples, masks: MaskBatch, special: SpecialTokens, layout: Layout) -> Ragged:
    """Recover the text of every row, rows of int32: the inverse of ``render_labels``."""
    assert examples.labels is not None
    every_label = examples.labels

    def text(row: int) -> np.ndarray:
        source, places = _source(examples, special, layout, row)
        labels = every_label[row, places]
        targets, gone = (_covered(masks, row, len(source), bits) for bits in (IN_TARGET, IN_SOURCE | REPLACED))
        if not np.array_equal(targets, labels != IGNORED):
            wrong = int(np.flatnonzero(targets != (labels != IGNORED))[0])
            raise FarspanError(f"token {wrong} has {'no' if targets[wrong] else 'a'} label, unlike its span")
        if (gone & ~targets).any():
            raise FarspanError(f"token {np.flatnonzero(gone & ~targets)[0]} is neither in the source nor a label")
        return np.where(targets, labels, source)

    return _every_row(examples, text)


def _every_row(examples: Examples, text: Callable[[int], np.ndarray]) -> Ragged:
    rows = []
    for row in range(len(examples)):
        try:
            rows.append(text(row))
        except FarspanError as error:
            raise FarspanError(f"sequence {examples.sequence_ids[row].tobytes().hex()}: {error}") from None
    return Ragged.from_rows(rows, np.int32)


def _source(examples: Examples, special: SpecialTokens, layout: Layout, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a source row without the tokens of the layout, and the positions of the remaining ones."""
    first, stop = int(layout.begin is not None), examples.source_lengths[row] - (layout.end is not None)
    edges = [special[name] for name in (layout.before, layout.between, layout.after) if name is not None]
    places = first + np.flatnonzero(~np.isin(examples.source_ids[row, first:stop], edges))
    return examples.source_ids[row, places], places


def _covered(masks: MaskBatch, row: int, size: int, bits: int) -> np.ndarray:
    """Return ``(size,)`` bool: True for the tokens of spans that have any of ``bits``."""
    spans = masks.span_flags[row] & bits != 0
    starts, sizes = masks.span_starts[row][spans], masks.span_lengths[row][spans]
    if len(starts) and starts[-1] + sizes[-1] > size:
        raise FarspanError(f"source has {size} tokens, spans reach to {starts[-1] + sizes[-1]}")
    edges = np.zeros(size + 1, np.int64)
    np.add.at(edges, starts, 1)
    np.add.at(edges, starts + sizes, -1)
    return np.cumsum(edges)[:size] > 0


def _text(
    source: np.ndarray, target: np.ndarray, masks: MaskBatch, row: int, special: SpecialTokens, mask: str | None
) -> np.ndarray:
    spans = zip(masks.span_starts[row], masks.span_lengths[row], masks.span_flags[row], strict=True)
    replacements = masks.replacements[row] if masks.replacements is not None else target[:0]
    pieces = []
    # positions in text, source and target; numbers of markers and replacements so far
    position = at = read = marker = replaced = 0
    for start, length, flags in spans:
        pieces.append(source[at : at + start - position])
        at += start - position
        if flags & IN_SOURCE:
            expected = special.sentinels[marker] if mask is None else special[mask]
            if at >= len(source) or source[at] != expected:
                raise FarspanError(f"marker {marker} is not in the source at token {start}")
            at += 1
            if mask is None and flags & IN_TARGET:
                if read >= len(target) or target[read] != expected:
                    raise FarspanError(f"marker {marker} is not in the target before token {start}")
                read += 1
            marker += 1
        if flags & REPLACED:
            if not np.array_equal(source[at : at + length], replacements[replaced : replaced + length]):
                raise FarspanError(f"tokens {start}:{start + length} are not shown as their replacements")
            at += length
            replaced += length
        visible = flags & VISIBLE or flags == 0
        if not visible and not flags & IN_TARGET:
            raise FarspanError(f"tokens {start}:{start + length} are in neither source nor target")
        pieces.append(source[at : at + length] if visible else target[read : read + length])
        at += length if visible else 0
        read += length if flags & IN_TARGET else 0
        position = start + length
    if at > len(source) or read != len(target):
        raise FarspanError("source or target does not end where the spans do")
    return np.concatenate([*pieces, source[at:]])
