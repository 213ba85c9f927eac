"""Windows of documents: cutting a shard's documents, taking a mixture's share of them, arranging them in rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from corpora.errors import FarspanError
from corpora.packing.assemble import Cuts
from corpora.packing.best_fit import best_fit_parts
from corpora.packing.concatenate import greedy_parts
from corpora.packing.options import Packing


@dataclass(frozen=True)
class Windows:
    """The rule by which documents are cut: windows start ``stride`` tokens apart, and a document's last may be shorter.

    A document not longer than a window is one piece.
    """

    size: int  # tokens of a full window
    stride: int  # tokens from the start of a window to that of the next, from 1 to ``size``

    @classmethod
    def of(cls, packing: Packing, stride: int = 0) -> Windows:
        """Make windows that each fill a row; a stride of 0 means no overlap."""
        size = packing.capacity - packing.room_per_document
        if not 0 <= stride <= size:
            raise FarspanError(
                f"stride {stride}: give 0 (no overlap) or up to {size}, the tokens of one document in a row"
            )
        return cls(size, stride or size)

    @property
    def overlap(self) -> int:
        """Tokens that a window shares with the previous one."""
        return self.size - self.stride

    def written(self, sizes: np.ndarray) -> np.ndarray:
        """Count the tokens in all windows of documents with ``(n,)`` tokens; returns ``(n,)`` int64."""
        sizes = np.asarray(sizes, np.int64)
        return sizes + self.overlap * -(-np.maximum(sizes - self.size, 0) // self.stride)

    def beginning(self, written: np.ndarray) -> np.ndarray:
        """Invert ``written``: tokens of the longest documents whose windows hold at most ``(n,)`` tokens; int64."""
        written = np.asarray(written, np.int64)
        full = np.maximum(written - 1, 0) // self.size  # windows before the last
        # in the last window only the tokens after the overlap are new
        return full * self.stride + np.maximum(written - full * self.size, np.where(full > 0, self.overlap, 0))

    def cut(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cut documents with ``(n,)`` tokens into p pieces.

        Returns document, offset in the document and tokens of each piece, ``(p,)`` int64 each, in document order.
        """
        sizes = np.asarray(sizes, np.int64)
        counts = (sizes > 0) + -(-np.maximum(sizes - self.size, 0) // self.stride)  # (n,)
        documents = np.repeat(np.arange(len(sizes)), counts)
        offsets = (np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts)) * self.stride
        return documents, offsets, np.minimum(sizes[documents] - offsets, self.size)


@dataclass(frozen=True)
class Taken:
    """The documents taken from a shard, pass by pass; a document in several passes is listed several times."""

    documents: np.ndarray  # (m,) int64, number of the document in the shard
    passes: np.ndarray  # (m,) int64, ascending
    sizes: np.ndarray  # (m,) int64, tokens from the document's start; all, except for one document per source

    @classmethod
    def all(cls, lengths: np.ndarray) -> Taken:
        """Take every document once; ``lengths``: ``(n,)`` tokens."""
        return cls(np.arange(len(lengths)), np.zeros(len(lengths), np.int64), np.asarray(lengths, np.int64))


def take(
    lengths: np.ndarray,
    sources: np.ndarray,
    epochs: Sequence[Fraction],
    pass_keys: Callable[[int], np.ndarray],
    windows: Windows,
) -> Taken:
    """Take ``floor(epochs * tokens)`` tokens of each source from n documents: whole passes, then part of one.

    A token counts once for every window that holds it. A last window that would hold only its overlap with the previous
    one is left out, so up to ``windows.overlap`` fewer tokens of a source are written.

    Returns the documents of each pass in the order of its keys, with all sources mixed. The last pass over a source
    takes documents in that order until the number of tokens is reached, and cuts the last document to fit.
    ``lengths``, ``sources``: ``(n,)`` tokens and source of each document. ``pass_keys``: pass -> ``(n, 2)`` uint64, the
    sort keys of the documents in that pass.
    """
    lengths = np.asarray(lengths, np.int64)
    rounds = [
        _one_pass(lengths, sources, epochs, number, pass_keys(number), windows)
        for number in range(math.ceil(max(epochs)))
    ]
    documents, sizes = (np.concatenate(column) for column in zip(*rounds, strict=True))
    return Taken(documents, np.repeat(np.arange(len(rounds)), [len(round[0]) for round in rounds]), sizes)


def _one_pass(
    lengths: np.ndarray,
    sources: np.ndarray,
    epochs: Sequence[Fraction],
    number: int,
    keys: np.ndarray,
    windows: Windows,
) -> tuple[np.ndarray, np.ndarray]:
    """Return documents and sizes of one pass, in key order."""
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # (n,)
    written = windows.written(lengths)  # (n,)
    sizes = np.zeros(len(lengths), np.int64)
    for source, passes in enumerate(epochs):
        members = order[sources[order] == source]
        ends = np.cumsum(written[members])
        available = int(ends[-1]) if len(members) else 0
        # whole passes are exact, so rounding down affects the last pass only
        target = math.floor(min(max(passes - number, Fraction(0)), Fraction(1)) * available)
        sizes[members] = windows.beginning(np.clip(target - (ends - written[members]), 0, written[members]))
    order = order[sizes[order] > 0]
    return order, sizes[order]


def arrange(taken: Taken, sources: np.ndarray, packing: Packing, windows: Windows, across: bool = False) -> Cuts:
    """Arrange taken documents in rows: full windows, and rows of shorter pieces, filled as ``packing.packing`` says.

    A row has pieces of one pass only, so that no row contains a text twice. Its pieces are in the order of ``taken``.

    ``sources``: ``(n,)`` number of the source of each of the shard's documents. ``across``: True if a row may have
    pieces of several sources.
    """
    which, offsets, sizes = windows.cut(taken.sizes)
    documents, passes = taken.documents[which], taken.passes[which]  # (pieces,)
    whole = sizes == windows.size
    groups = passes if across else passes * (int(sources.max(initial=0)) + 1) + sources[documents]
    full = np.flatnonzero(whole)
    # row, piece, offset in the piece and size of every part, (4, parts), group by group
    parts = [np.stack([np.arange(len(full)), full, np.zeros(len(full), np.int64), sizes[full]])]
    rows = len(full)
    for group in np.unique(groups[~whole]):
        short = np.flatnonzero(~whole & (groups == group))
        filled = _fill(sizes[short], packing)
        filled[0] += rows
        filled[1] = short[filled[1]]
        rows = int(filled[0, -1]) + 1 if filled.size else rows
        parts.append(filled)
    row, piece, start, size = np.concatenate(parts, axis=1)
    return Cuts(
        np.searchsorted(row, np.arange(rows + 1)), documents[piece], offsets[piece] + start, size, passes[piece]
    )


def _fill(lengths: np.ndarray, packing: Packing) -> np.ndarray:
    """Fill rows with pieces shorter than a row; return row, piece, offset and size of every part, ``(4, parts)``."""
    if packing.packing == "best-fit":
        return best_fit_parts(lengths, packing.capacity, packing.room_per_document)
    if packing.packing == "powers-of-two":
        return _power_parts(lengths, packing.power_sizes)
    return greedy_parts(lengths, packing.capacity, packing.room_per_document, True)


def _power_parts(lengths: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Cut each piece into rows of its own, of the given sizes, the largest first; an end below all of them is lost.

    Source: Pouransari et al. 2024, "Dataset decomposition" (arXiv 2405.13226), section 2.
    """
    left = lengths
    parts = []
    for size in sizes:
        counts, rest = np.divmod(left, size)
        pieces = np.repeat(np.arange(len(lengths)), counts)
        preceding = np.arange(len(pieces)) - np.repeat(np.cumsum(counts) - counts, counts)  # of this size
        parts.append(
            np.stack([pieces, pieces, (lengths - left)[pieces] + preceding * size, np.full(len(pieces), size)])
        )
        left = rest
    cut = np.concatenate(parts, axis=1)
    cut[0] = np.arange(cut.shape[1])  # each part is a row
    return cut
