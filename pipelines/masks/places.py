"""The places of hidden text: in its row, and in its document's part of the row."""

from __future__ import annotations

import os

import numpy as np

from corpora.storage import files
from corpora.storage.manifest_file import NAME, find_parent
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from objectives.api.masks import IN_TARGET


def places_of_masks(folder: str, masks: ShardedRows) -> tuple[np.ndarray, np.ndarray] | None:
    """Place of each target span in its row and in its document, from 0 to 1; both ``(spans,)`` float32.

    The place of a span is that of its middle. None if the corpus has moved or gone since the masks were made.
    """
    parent = find_parent(folder)
    if parent is None or not files.exists(os.path.join(parent, NAME)):
        return None
    corpus = ShardedRows(parent, "farspan.corpus")
    count = max(len(corpus.manifest.shards), 1)
    in_row, in_document = [np.empty(0, np.float32)], [np.empty(0, np.float32)]
    for shard, info in enumerate(masks.manifest.shards):
        for batch in range(-(-info.rows // masks.manifest.rows_per_batch)):
            hidden, text = masks.batch(shard, batch), corpus.batch(shard % count, batch)
            spans = [hidden.column(f"span_{name}") for name in ("starts", "lengths", "flags")]
            starts, sizes, flags = (Ragged.from_arrow(column).compact() for column in spans)
            in_target = flags.values & IN_TARGET != 0
            rows = np.repeat(np.arange(len(hidden)), starts.lengths)[in_target]
            middles = (starts.values + sizes.values / 2)[in_target]
            lengths = Ragged.from_arrow(text.column("tokens")).lengths
            in_row.append((middles / lengths[rows]).astype(np.float32))
            in_document.append(_in_document(rows, middles, lengths, Ragged.from_arrow(text.column("document_starts"))))
    return np.concatenate(in_row), np.concatenate(in_document)


def _in_document(rows: np.ndarray, middles: np.ndarray, lengths: np.ndarray, starts: Ragged) -> np.ndarray:
    """Place of each span in its document's part of the row, ``(spans,)`` float32.

    ``rows`` and ``middles``, ``(spans,)``, are each span's row and its middle there; ``lengths``, ``(n,)``, the rows'
    tokens; ``starts`` the first token of each of their parts.
    """
    starts = starts.compact()
    first = np.concatenate([[0], np.cumsum(lengths)])  # first token of each row among the tokens of all rows
    parts = starts.values + np.repeat(first[:-1], starts.lengths)
    edges = np.append(parts, first[-1])
    places = middles + first[rows]
    part = np.searchsorted(parts, places, side="right") - 1  # (spans,)
    result: np.ndarray = ((places - edges[part]) / (edges[part + 1] - edges[part])).astype(np.float32)
    return result
