"""``SpanDraws``, the numbers that spans are drawn by, and their mask rows: one call for rows of several objectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET, MaskBatch
from objectives.draws.compositions import draw_spans
from objectives.rendering.render import columns


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
