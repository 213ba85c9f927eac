"""The places of hidden text: in its row, and in its document's part of the row."""

from __future__ import annotations

import os

import numpy as np

from corpora.storage import files
from corpora.storage.manifest_file import NAME
from corpora.storage.origins import find_parent
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from objectives.api.masks import IN_TARGET


def places_of_masks(folder: str, masks: ShardedRows) -> tuple[np.ndarray, np.ndarray] | None:
    """Place of each span that a model is asked for, ``(spans,)`` float32 each: in its row and in its document, 0 to 1.

    A span lies where its middle is. None where the corpus is not where it was when the masks were made.
    """
    parent = find_parent(folder, masks.manifest)
    if parent is None or not files.exists(os.path.join(parent, NAME)):
        return None
    corpus = ShardedRows(parent, "farspan.corpus")
    count = max(len(corpus.manifest.shards), 1)
    in_row, in_document = [np.empty(0, np.float32)], [np.empty(0, np.float32)]
    for shard, info in enumerate(masks.manifest.shards):
        for batch in range(-(-info.rows // masks.manifest.rows_per_batch)):
            own, text = masks.batch(shard, batch), corpus.batch(shard % count, batch)
            spans = [Ragged.from_arrow(own.column(f"span_{name}")).compact() for name in ("starts", "lengths", "flags")]
            asked = spans[2].values & IN_TARGET != 0
            rows = np.repeat(np.arange(len(own)), spans[0].lengths)[asked]
            middles = (spans[0].values + spans[1].values / 2)[asked]
            lengths = Ragged.from_arrow(text.column("tokens")).lengths
            in_row.append((middles / lengths[rows]).astype(np.float32))
            in_document.append(_in_document(rows, middles, lengths, Ragged.from_arrow(text.column("document_starts"))))
    return np.concatenate(in_row), np.concatenate(in_document)


def _in_document(rows: np.ndarray, middles: np.ndarray, lengths: np.ndarray, starts: Ragged) -> np.ndarray:
    """Place of each span in its document's part of the row, ``(spans,)`` float32.

    Args:
        rows, middles: ``(spans,)``, row of each span and its middle in the row.
        lengths: ``(n,)`` tokens of each row.
        starts: first token of each part of each row.
    """
    starts = starts.compact()
    first = np.concatenate([[0], np.cumsum(lengths)])  # of each row among the tokens of all
    parts = starts.values + np.repeat(first[:-1], starts.lengths)
    edges = np.append(parts, first[-1])
    places = middles + first[rows]
    own = np.searchsorted(parts, places, side="right") - 1
    found: np.ndarray = ((places - edges[own]) / (edges[own + 1] - edges[own])).astype(np.float32)
    return found
