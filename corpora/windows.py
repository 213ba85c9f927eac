"""Long documents as windows: full rows of one document each, and what remains concatenated with its like."""

from __future__ import annotations

import numpy as np

from corpora.assembly import Cuts
from corpora.concatenation import Packing, greedy_parts
from corpora.errors import FarspanError
from corpora.mixture import Taken


def check_stride(packing: Packing, stride: int) -> None:
    """Raise a ``FarspanError`` unless windows that begin ``stride`` tokens apart (0: a window's size) leave no gap."""
    window = packing.capacity - packing.room_per_document
    if not 0 <= stride <= window:
        raise FarspanError(
            f"stride {stride}: give 0 (no overlap) or up to {window}, the tokens of one document in a row"
        )


def cut_windows(sizes: np.ndarray, window: int, stride: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut n documents into windows, the last of a document being shorter unless it fits exactly.

    Args:
        sizes: ``(n,)`` tokens.
        window: tokens of a full window.
        stride: tokens from the beginning of a window to that of the next, at most ``window``; 0 is ``window``.

    Returns:
        For each of p pieces its document, its offset in it and its tokens, ``(p,)`` int64 each, in document order.
        A document shorter than a window is one piece. The last piece begins where its window would have begun.
    """
    stride = stride or window
    sizes = np.asarray(sizes, np.int64)
    full = np.where(sizes >= window, (sizes - window) // stride + 1, 0)  # (n,)
    covered = np.where(full > 0, (full - 1) * stride + window, 0)
    counts = full + (sizes > covered)
    documents = np.repeat(np.arange(len(sizes)), counts)
    offsets = (np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts)) * stride
    return documents, offsets, np.minimum(sizes[documents] - offsets, window)


def arrange(taken: Taken, sources: np.ndarray, packing: Packing, stride: int = 0, across: bool = False) -> Cuts:
    """Rows of what a shard takes: a full window is a row, shorter pieces are concatenated in the order of ``taken``.

    Pieces of one pass share rows with each other only, so that no row holds a text twice.

    Args:
        sources: ``(n,)`` number of the source of each of the shard's documents.
        packing: the room in a row; pieces are split at its end.
        across: concatenate pieces of all sources with each other; otherwise those of one source.
    """
    window = packing.capacity - packing.room_per_document
    which, offsets, sizes = cut_windows(taken.sizes, window, stride)
    documents, passes = taken.documents[which], taken.passes[which]  # (pieces,)
    whole = sizes == window
    groups = passes if across else passes * (int(sources.max(initial=0)) + 1) + sources[documents]
    full = np.flatnonzero(whole)
    # row, piece, offset in the piece and size of every part, (4, parts), group by group
    parts = [np.stack([np.arange(len(full)), full, np.zeros(len(full), np.int64), sizes[full]])]
    rows = len(full)
    for group in np.unique(groups[~whole]):
        short = np.flatnonzero(~whole & (groups == group))
        filled = greedy_parts(sizes[short], packing.capacity, packing.room_per_document, True)
        filled[0] += rows
        filled[1] = short[filled[1]]
        rows = int(filled[0, -1]) + 1
        parts.append(filled)
    row, piece, start, size = np.concatenate(parts, axis=1)
    return Cuts(
        np.searchsorted(row, np.arange(rows + 1)), documents[piece], offsets[piece] + start, size, passes[piece]
    )
