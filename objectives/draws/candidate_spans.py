"""Candidate spans of model-based masks, hidden or not, as mask rows and back.

All candidates are stored, so that another budget can be applied to a stored mask set. A candidate of which a budget
hides only the first tokens is stored as two spans of the same rank.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corpora.storage.ragged import Ragged
from objectives.api.masks import CANDIDATE, IN_SOURCE, IN_TARGET, MaskBatch
from objectives.draws.hardest_spans import keep_hardest


class Candidates(NamedTuple):
    """The candidate spans of n rows.

    Attributes:
        starts, lengths: n rows of int32, in tokens.
        scores: n rows of float32, the loss of each span.
        ranks: n rows of int32, 0 for the largest loss of a row.
    """

    starts: Ragged
    lengths: Ragged
    scores: Ragged
    ranks: Ragged


def hide_hardest(
    sequence_ids: np.ndarray, candidates: Candidates, tokens: np.ndarray, spans: np.ndarray, positions: np.ndarray
) -> MaskBatch:
    """Hide candidates by rank until a budget of their row is used up; one that is cut becomes two spans.

    ``sequence_ids``: ``(n, 16)`` uint8. ``tokens``, ``spans``, ``positions``: ``(n,)`` int64, the budgets of each row,
    as for ``keep_hardest``. Returns n rows with all candidates; rendered lengths are still 0.
    """
    starts, lengths, scores, ranks = candidates
    rows_in_batch = len(sequence_ids)
    kept = keep_hardest(lengths, ranks, tokens, spans, positions).values
    cut = (kept > 0) & (kept < lengths.values)
    rows = np.repeat(np.arange(rows_in_batch), lengths.lengths)
    counts = lengths.lengths + np.bincount(rows[cut], minlength=rows_in_batch)
    piece = np.repeat(np.arange(len(kept)), 1 + cut)  # (pieces,) candidate of each piece
    rest = np.zeros(len(piece), bool)  # True for the second piece of a candidate
    rest[1:] = piece[1:] == piece[:-1]
    hidden, whole = kept[piece], lengths.values[piece]
    size = np.where(rest, whole - hidden, np.where(hidden > 0, hidden, whole))
    flags = np.where((hidden > 0) & ~rest, IN_SOURCE | IN_TARGET, CANDIDATE)
    return MaskBatch(
        sequence_ids,
        Ragged.from_lengths(starts.values[piece] + hidden * rest, counts),
        Ragged.from_lengths(size, counts),
        Ragged.from_lengths(flags.astype(np.uint8), counts),
        source_lengths=np.zeros(rows_in_batch, np.int32),
        target_lengths=np.zeros(rows_in_batch, np.int32),
        span_scores=Ragged.from_lengths(scores.values[piece], counts),
        span_ranks=Ragged.from_lengths(ranks.values[piece], counts),
    )


def whole_candidates(masks: MaskBatch) -> Candidates:
    """Return the candidates in mask rows, joining the pieces of those that were cut: adjacent spans of equal rank."""
    assert masks.span_ranks is not None
    assert masks.span_scores is not None
    ranks = masks.span_ranks.compact()
    first = np.ones(len(ranks.values), bool)  # True for the first piece of a candidate
    first[1:] = np.diff(ranks.values) != 0
    first[ranks.offsets[:-1][ranks.lengths > 0]] = True
    firsts = np.flatnonzero(first)
    counts = np.diff(np.append(0, np.cumsum(first))[ranks.offsets])
    starts, lengths, scores = (
        column.compact().values for column in (masks.span_starts, masks.span_lengths, masks.span_scores)
    )
    united = np.add.reduceat(lengths, firsts) if len(firsts) else lengths
    columns = (starts[firsts], united, scores[firsts], ranks.values[firsts])
    return Candidates(*(Ragged.from_lengths(column, counts) for column in columns))
