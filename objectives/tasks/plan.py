"""Division of the positions of source and target among query, documents and target, from lengths alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from corpora.storage.ragged import Ragged
from objectives.tasks.kernels import divide
from objectives.tasks.protocol import NO_TARGET, Cut, Lengths


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The settings and numbers of positions that do not depend on a pair.

    Attributes:
        source_length, target_length, block: maximum positions; without blocks, ``block`` is ``source_length``.
        before_source: positions before the query in a block, or before the documents if it has none.
        before_target: positions before the query in the target, or before the answer.
        middle, separator, end: positions after a query, of a separator, and of the end of a source.
        query: place of the query: ``source``, ``target`` or None.
        query_tokens: maximum tokens of a query; None for no limit.
        separator_last: True if a separator also follows the last document.
        shares: True if each document has a share of the source.
        handed_on: True if unused parts of shares go to longer documents.
        tails: True if cut texts keep both ends.
    """

    source_length: int
    target_length: int
    block: int
    before_source: int
    before_target: int
    middle: int
    separator: int
    end: int
    query: str | None
    query_tokens: int | None
    separator_last: bool
    shares: bool
    handed_on: bool
    tails: bool


class Plan(NamedTuple):
    """The shown parts of n pairs, ``(n,)`` int64 each unless stated.

    Attributes:
        lengths: rendered lengths and cuts.
        room: positions that begin, prefix, query and middle leave in a block, or in the target; if below 1, the pair
            cannot be rendered, and the other attributes are undefined.
        queries, targets: shown tokens of query and target; ``NO_TARGET`` for no target.
        pieces: positions of the documents in a block.
        kept, streams: results of ``divide``.
    """

    lengths: Lengths
    room: np.ndarray
    queries: np.ndarray
    targets: np.ndarray
    pieces: np.ndarray
    kept: np.ndarray
    streams: np.ndarray


def plan(frame: Frame, queries: np.ndarray, documents: Ragged, targets: np.ndarray) -> Plan:
    """Divide the positions of n pairs.

    ``queries``: ``(n,)`` int64, tokens of each query, 0 for none. ``documents``: n rows of int64, tokens of each
    document. ``targets``: ``(n,)`` int64, tokens of each target; ``NO_TARGET`` for none.
    """
    documents = documents.compact()
    if frame.query is None:
        queries = np.zeros_like(queries)
    shown = queries if frame.query_tokens is None else np.minimum(queries, frame.query_tokens)
    question = np.where(shown > 0, shown + frame.middle, 0)
    head = frame.before_source + question * (frame.query == "source")
    lead = frame.before_target + question * (frame.query == "target")
    pieces = frame.block - head - frame.end
    answer_room = frame.target_length - lead - 1
    limit = frame.source_length - frame.end
    whole, rest = divmod(limit, frame.block)
    kept = np.empty((len(documents.values), 2), np.int64)
    streams = np.empty((4, len(queries)), np.int64)
    room = whole * pieces + np.clip(rest - head, 0, np.maximum(pieces, 0))
    choice = (frame.separator, frame.separator_last, frame.shares, frame.handed_on, frame.tails)
    divide(documents.values, documents.offsets, room, *choice, kept, streams)
    # like fairseq, which builds all blocks and then cuts, so the last block may end inside its query
    stream = streams[1] + streams[2] if frame.tails or frame.shares else streams[0]
    blocks = np.maximum(-(-stream // np.maximum(pieces, 1)), 1)
    source = np.minimum(blocks * (head + frame.end) + stream - frame.end, limit) + frame.end
    answers = np.minimum(targets, answer_room)
    prompt = lead * (frame.query == "target")
    ends = np.append(0, np.cumsum(documents.values))[documents.offsets]
    cut = Cut(queries - shown, np.diff(ends) - streams[3], targets - answers)
    target = np.where(targets == NO_TARGET, prompt, lead + answers + 1)
    least = answer_room if frame.query == "target" else pieces
    return Plan(Lengths(source, target, prompt, cut), least, shown, answers, pieces, kept, streams)
