"""Concatenation of documents into sequences of a fixed length.

The order comes from a keyed hash of the ids (a global shuffle without a buffer); filling is greedy; nothing is dropped
unless an option says so. The best corpus of BART-LS (arXiv 2209.10052, section 3.2) has such sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpora.compiled import compiled
from corpora.packing.assemble import assemble
from corpora.packing.options import Packing
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged


@dataclass(frozen=True)
class Concatenation:
    """The sequences of one shard, with the document of each part."""

    sequences: SequenceBatch
    documents: np.ndarray  # (parts,) int64, number of the document of each part in ``sequences``


def concatenate(document_ids: pa.Array, tokens: Ragged, sentence_starts: Ragged, packing: Packing) -> Concatenation:
    """Fill sequences with n documents in the given order.

    ``tokens``: n rows of uint16 or int32; ``packing.keeps`` is True for all of them. ``sentence_starts``: n rows of
    int32, token positions in each document. Returns sequences whose tokens, read one after the other, are the
    documents' tokens, read one after the other.
    """
    tokens, sentence_starts = tokens.compact(), sentence_starts.compact()
    lengths = tokens.lengths
    parts = greedy_parts(lengths, packing.capacity, packing.room_per_document, packing.packing != "whole-documents")
    rows, documents, offsets, sizes = parts  # (parts,) int64 each
    if packing.drop_ragged_tail and len(rows):
        last = rows == rows[-1]
        free = packing.capacity - sizes[last].sum() - packing.room_per_document * last.sum()
        if free > packing.room_per_document:
            rows, documents, offsets, sizes = parts[:, ~last]
    count = int(rows[-1]) + 1 if len(rows) else 0
    row_offsets = np.searchsorted(rows, np.arange(count + 1))  # (count + 1,) first part of each row
    total = int(sizes.sum())
    # (sentences,) in the flat tokens
    sentences = sentence_starts.values + np.repeat(tokens.offsets[:-1], sentence_starts.lengths)
    sequences = assemble(
        document_ids.take(pa.array(documents)),
        Ragged.from_lengths(tokens.values[:total], sizes),
        sentences[sentences < total],
        offsets,
        lengths[documents],
        row_offsets,
    )
    return Concatenation(sequences, documents)


@compiled(small=True)
def greedy_parts(lengths: np.ndarray, capacity: int, reserved: int, split: bool) -> np.ndarray:
    """Fill rows greedily; return row, document, offset in the document and size of every part, ``(4, parts)`` int64.

    ``lengths``: ``(n,)`` tokens of each document.
    """
    most = len(lengths) + 1
    for length in lengths:
        most += int(length) // (capacity - reserved) + 1
    parts = np.empty((4, most), np.int64)
    row, free, part = 0, capacity, 0
    for document in range(len(lengths)):
        left = int(lengths[document])
        while left > 0:
            if free <= reserved or (not split and free < left + reserved and free < capacity):
                row, free = row + 1, capacity
            size = min(left, free - reserved)
            parts[0, part], parts[1, part] = row, document
            parts[2, part], parts[3, part] = lengths[document] - left, size
            left -= size
            free -= size + reserved
            part += 1
    return parts[:, :part]
