"""``Texts``, the ids that a task inserts, and ``Plan``, the division of positions among the parts of pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corpora.storage.ragged import Ragged
from objectives.tasks.kernels import divide
from objectives.tasks.protocol import Lengths


class Texts(NamedTuple):
    """Ids of the inserted texts, int32; ``NO_TOKEN`` for special tokens whose ids are not known."""

    before_source: np.ndarray  # begin, and the prefix unless it is in the target
    before_target: np.ndarray
    middle: np.ndarray
    separator: np.ndarray


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


def divide_sources(
    documents: Ragged, head: np.ndarray, length: int, block: int, end: int, choice: tuple[int, bool, bool, bool, bool]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divide the positions of n sources among blocks, and those of the blocks among documents.

    ``documents``: n rows, tokens of each document. ``head``: ``(n,)`` int64, positions before the documents in a block.
    ``end``: positions of the end token. ``choice``: the arguments ``separator`` to ``tails`` of ``divide``. Returns the
    lengths of the sources, ``(n,)`` int64, and ``kept`` and ``streams`` of ``divide``.
    """
    pieces = block - head - end
    whole, rest = divmod(length - end, block)
    room = whole * pieces + np.clip(rest - head, 0, np.maximum(pieces, 0))
    kept = np.empty((len(documents.values), 2), np.int64)
    streams = np.empty((4, len(head)), np.int64)
    divide(documents.values, documents.offsets, room, *choice, kept, streams)
    _, _, shares, _, tails = choice
    # like fairseq, which builds all blocks and then cuts, so the last block may end inside its query
    stream = streams[1] + streams[2] if tails or shares else streams[0]
    blocks = np.maximum(-(-stream // np.maximum(pieces, 1)), 1)
    return np.minimum(blocks * (head + end) + stream, length), kept, streams
