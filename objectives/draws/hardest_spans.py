"""The hardest candidate spans within a budget (BART-LS, arXiv:2209.10052, section 2.3), and their mask rows.

The published code takes the k spans with the largest mean loss, where k is a fifth of the smallest number of spans of
any row in the batch, so a row's spans depend on the other rows. Here every row has its own budgets, and the last span
is cut where a budget is used up. All candidates are stored, so that another budget can be applied to a stored mask set;
a candidate that is cut is stored as two spans of the same rank.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corpora.compiled import compiled
from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from objectives.api.masks import CANDIDATE, IN_SOURCE, IN_TARGET, MaskBatch
from objectives.rendering.render import columns

AGGREGATIONS = ("mean", "sum", "max")


def span_losses(token_losses: np.ndarray, span_lengths: Ragged, aggregation: str = "mean") -> Ragged:
    """Aggregate the losses of all spans' tokens, ``(tokens,)`` float, to one loss per span, rows of float32.

    ``span_lengths``: rows of int, at least 1 each; their sum is ``tokens``. ``aggregation``: ``mean``, ``sum`` or
    ``max`` over a span's tokens, in float64.
    """
    lengths = span_lengths.compact()
    firsts = np.cumsum(lengths.values, dtype=np.int64) - lengths.values
    if not len(firsts):
        return Ragged(np.empty(0, np.float32), lengths.offsets)
    reduced = (np.maximum if aggregation == "max" else np.add).reduceat(token_losses.astype(np.float64), firsts)
    if aggregation == "mean":
        reduced /= lengths.values
    return Ragged(reduced.astype(np.float32), lengths.offsets)


def rank_spans(losses: Ragged) -> Ragged:
    """Rank the spans of each row by loss, rows of int32: 0 for the largest; of equal losses, the earlier is first."""
    losses = losses.compact()
    rows = np.repeat(np.arange(len(losses)), losses.lengths)
    order = np.lexsort((-losses.values, rows))  # stable
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order)) - losses.offsets[rows]
    return Ragged(ranks, losses.offsets)


def keep_hardest(
    span_lengths: Ragged, ranks: Ragged, tokens: np.ndarray, spans: np.ndarray, positions: np.ndarray
) -> Ragged:
    """Take spans by rank until a budget of their row is used up; return the number of tokens taken from each.

    Returns rows of int32: 0 for a span that is not taken, and less than its length for one that is cut. ``ranks``: rows
    of int32, each a permutation of 0, 1, ... ``tokens``, ``spans``, ``positions``: ``(n,)`` int64, the budgets of each
    row; a span takes one position per token and one for its marker.
    """
    candidates = columns(span_lengths, ranks)
    kept = np.zeros(len(candidates[0]), np.int32)
    row = _keep(candidates, tokens, spans, positions, kept)
    if row >= 0:
        raise FarspanError(
            f"row {row}: the ranks of its {span_lengths.lengths[row]} spans are not 0, 1, ..., each once; the mask set "
            "is damaged, run `farspan mask` again"
        )
    return Ragged(kept, candidates[-1])


@compiled
def _keep(candidates: tuple, tokens: np.ndarray, spans: np.ndarray, positions: np.ndarray, kept: np.ndarray) -> int:
    """Fill ``kept``; return the first row whose ranks are not a permutation, or -1."""
    lengths, ranks, offsets = candidates
    by_rank = np.full(len(lengths), -1, np.int64)
    for row in range(len(offsets) - 1):
        first, last = offsets[row], offsets[row + 1]
        for i in range(first, last):
            # Ranks may come from a file, and compiled code does not check bounds.
            if not 0 <= ranks[i] < last - first or by_rank[first + ranks[i]] >= 0:
                return row
            by_rank[first + ranks[i]] = i
        left, room = tokens[row], positions[row]
        for place in range(min(last - first, spans[row])):
            span = by_rank[first + place]
            size = min(lengths[span], left, room - 1)
            if size < 1:
                break
            kept[span] = size
            left -= size
            room -= size + 1
    return -1


class Candidates(NamedTuple):
    """The candidate spans of n rows, rows of int32 but for ``scores``."""

    starts: Ragged
    lengths: Ragged
    scores: Ragged  # float32, the loss of each span
    ranks: Ragged  # 0 for the largest loss of a row


def hide_hardest(
    sequence_ids: np.ndarray, candidates: Candidates, tokens: np.ndarray, spans: np.ndarray, positions: np.ndarray
) -> MaskBatch:
    """Hide candidates by rank until a budget of their row is used up; one that is cut becomes two spans.

    Budgets are those of ``keep_hardest``. Returns n rows with all candidates; rendered lengths are still 0.
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
