"""Spans of chosen sentences: their treatment, and the selection of those that fit a target.

A chosen sentence is hidden behind a mask token, replaced, left unchanged, or removed without a marker, as in the
published code of PEGASUS (pegasus/ops/pretrain_parsing_ops.cc). The target always has the sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from corpora.compiled import compiled
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch
from objectives.rendering.layout import Layout
from objectives.sentences.selection import Sentences, uniform

TREATMENTS = np.array([IN_SOURCE | IN_TARGET, REPLACED | IN_TARGET, VISIBLE | IN_TARGET, IN_TARGET], np.uint8)
"""Flags of mask, random, intact and remove."""
RANDOM = 1


def choose_treatments(bits: np.ndarray, chances: Sequence[float]) -> np.ndarray:
    """Draw a treatment for each sentence: indices into ``TREATMENTS``, ``(k,)`` int64.

    ``bits``: ``(k, 4)`` uint64, of which the third column is used. ``chances`` are in the order of ``TREATMENTS``.
    """
    bounds = np.cumsum(chances)
    # The float sum may be slightly below 1; a number above it gets the last treatment with a probability above 0.
    bounds[np.flatnonzero(chances)[-1] :] = 1.0
    return np.searchsorted(bounds, uniform(bits[:, 2]), side="right")


def stand_ins(batch: SequenceBatch, sentences: Sentences, numbers: np.ndarray, bits: np.ndarray) -> Ragged:
    """Draw replacements for sentences: the ids of a sentence of the same text, repeated or cut to as many tokens.

    As in the published code, it is a random sentence of the text, possibly the replaced one. (There, it keeps its own
    length and may already be masked.)

    ``numbers``: ``(k,)`` int64, the replaced sentences, ascending. ``bits``: ``(k, 4)`` uint64, of which the fourth
    column is used. Returns one int32 row for each row of ``batch``, the ids of its sentences concatenated.
    """
    text = sentences.text_of_sentence[numbers]
    rows = sentences.row_of_text[text]
    # A remainder of 64 random bits is uniform, to one part in 2**40 at a million sentences.
    others = sentences.texts[text] + (bits[:, 3] % sentences.sizes[text].astype(np.uint64)).astype(np.int64)
    lengths = sentences.lengths[numbers]
    ids = np.empty(lengths.sum(), np.int32)
    tokens = batch.tokens.compact()
    _repeat(tokens.values, tokens.offsets[rows] + sentences.starts[others], sentences.lengths[others], lengths, ids)
    return Ragged.from_lengths(ids, np.bincount(rows, lengths, len(batch)).astype(np.int64))


@compiled
def _repeat(tokens: np.ndarray, starts: np.ndarray, sizes: np.ndarray, lengths: np.ndarray, ids: np.ndarray) -> None:
    at = 0
    for i in range(len(starts)):
        for j in range(lengths[i]):
            ids[at] = tokens[starts[i] + j % sizes[i]]
            at += 1


def within_target(masks: MaskBatch, room: int, when_full: str) -> MaskBatch:
    """Remove the spans that do not fit the target, and renumber the ranks of the others.

    Spans are tried by rank. One that does not fit is left out (``skip``) or ends the selection (``stop``). If no span
    of a row fits, its first is cut.

    ``masks``: n rows of spans that are all in the target, with ranks and without labels; rendered lengths are not
    changed. ``room``: maximum number of tokens in the spans of a row, at least 1.
    """
    starts, lengths, flags = (c.compact() for c in (masks.span_starts, masks.span_lengths, masks.span_flags))
    assert masks.span_ranks is not None
    ranks = masks.span_ranks.compact().values
    rows = np.repeat(np.arange(len(masks)), starts.lengths)
    order = np.lexsort((ranks, rows))
    taken = np.zeros(len(rows), np.int64)
    taken[order] = _fit(lengths.values[order].astype(np.int64), starts.offsets, room, when_full == "stop")
    kept = taken > 0
    counts = np.bincount(rows[kept], minlength=len(masks))
    places = order[kept[order]]  # the kept spans of each row, by rank
    ranks = np.zeros_like(ranks)
    ranks[places] = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)

    def column(values: np.ndarray) -> Ragged:
        return Ragged.from_lengths(values[kept], counts)

    replacements = masks.replacements
    if replacements is not None:
        replaced = flags.values & REPLACED > 0
        texts = Ragged.from_lengths(replacements.compact().values, lengths.values[replaced])
        begins = np.zeros(len(texts), np.int64)
        pieces = texts.cut(np.arange(len(texts)), begins, taken[replaced])
        sizes = np.bincount(rows[replaced], pieces.lengths, len(masks))
        replacements = Ragged.from_lengths(pieces.values, sizes.astype(np.int64))
    return replace(
        masks,
        span_starts=column(starts.values),
        span_lengths=column(taken.astype(np.int32)),
        span_flags=column(flags.values),
        span_scores=None if masks.span_scores is None else column(masks.span_scores.compact().values),
        span_ranks=column(ranks),
        replacements=replacements,
    )


def longest_texts(
    batch: SequenceBatch, layout: Layout, target_length: int | None, most: Callable[[], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Compute upper bounds on source and target lengths over all choices of sentences, ``(n,)`` int64 each.

    A hidden sentence leaves at most one token in the source, so no source is longer than its text. ``most`` returns
    ``selection.most_tokens``, which is slow; it is called only if ``target_length`` is None.
    """
    tokens = batch.tokens.lengths.astype(np.int64)
    sources = tokens + layout.around(batch.document_starts.lengths)
    if target_length is None:
        return sources, most() + layout.ends
    return sources, np.minimum(tokens + layout.ends, target_length)


@compiled
def _fit(lengths: np.ndarray, spans: np.ndarray, room: int, stop: bool) -> np.ndarray:
    """Compute the tokens taken from each span, 0 if it is left out; the spans of a row are in the order of ranks."""
    taken = np.zeros(len(lengths), np.int64)
    for row in range(len(spans) - 1):
        left = room
        for i in range(spans[row], spans[row + 1]):
            if lengths[i] <= left:
                taken[i] = lengths[i]
                left -= lengths[i]
            elif stop:
                break
        if left == room and spans[row] < spans[row + 1]:
            taken[spans[row]] = room
    return taken
