"""Assembling of corpus rows from parts of documents, with the starts of parts and sentences and the rows' ids."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from corpora.compiled import compiled
from corpora.keyed import id_keys
from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch
from corpora.storage.ragged import Ragged


@dataclass(frozen=True)
class Cuts:
    """The p parts of n rows, as pieces of documents; row i has the parts ``row_offsets[i]:row_offsets[i + 1]``."""

    row_offsets: np.ndarray  # (n + 1,) int64; every row has at least one part
    documents: np.ndarray  # (p,) int64, number of each part's document
    offsets: np.ndarray  # (p,) int64, start of each part in its document
    sizes: np.ndarray  # (p,) int64, tokens of each part
    uses: np.ndarray  # (p,) int64, number of earlier uses of the document

    def take(self, rows: np.ndarray) -> Cuts:
        """Return the given rows, in the given order."""
        parts = Ragged(np.arange(len(self.documents)), self.row_offsets).take(rows)
        chosen = parts.values
        return Cuts(parts.offsets, self.documents[chosen], self.offsets[chosen], self.sizes[chosen], self.uses[chosen])

    def shuffle(self, key: bytes, ids: list[str]) -> Cuts:
        """Order the rows by a keyed hash of their first parts, which are distinct; ``ids`` are those of documents."""
        heads = self.row_offsets[:-1]
        columns = (self.documents[heads], self.offsets[heads], self.uses[heads])
        parts = zip(*(column.tolist() for column in columns), strict=True)
        keys = id_keys(key, (f"{ids[document]}\0{offset}\0{use}" for document, offset, use in parts))
        return self.take(np.lexsort((keys[:, 1], keys[:, 0])))


def assemble_cuts(
    document_ids: pa.Array, tokens: Ragged, sentence_starts: Ragged, cuts: Cuts, cluster_ids: np.ndarray | None = None
) -> SequenceBatch:
    """Cut parts out of whole documents and assemble them into rows.

    ``tokens``: one row of uint16 or int32 per document. ``sentence_starts``: one row of int32 per document.
    ``cluster_ids``: ``(n,)`` int64; None for no clusters.
    """
    pieces = tokens.cut(cuts.documents, cuts.offsets, cuts.sizes)
    inside = cut_sentences(sentence_starts, cuts.documents, cuts.offsets, cuts.sizes)
    return assemble(
        document_ids.take(pa.array(cuts.documents)),
        pieces,
        inside.values + np.repeat(pieces.offsets[:-1], inside.lengths),
        cuts.offsets,
        tokens.lengths[cuts.documents],
        cuts.row_offsets,
        cuts.uses,
        cluster_ids,
    )


def cut_sentences(starts: Ragged, documents: np.ndarray, offsets: np.ndarray, sizes: np.ndarray) -> Ragged:
    """Return the sentence starts inside each of p pieces of documents, relative to the piece's start.

    ``documents``, ``offsets``, ``sizes``: ``(p,)`` each, the pieces.
    """
    inside = _bounds(starts.values, starts.offsets, documents, offsets, sizes)  # (2, p) of starts in their rows
    cut = starts.cut(documents, inside[0], inside[1] - inside[0])
    return Ragged(cut.values - np.repeat(offsets, cut.lengths).astype(cut.values.dtype), cut.offsets)


@compiled(small=True)
def _bounds(
    values: np.ndarray, rows: np.ndarray, documents: np.ndarray, offsets: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    bounds = np.empty((2, len(documents)), np.int64)
    for i in range(len(documents)):
        row = values[rows[documents[i]] : rows[documents[i] + 1]]
        first = int(offsets[i])
        bounds[0, i] = np.searchsorted(row, first)
        bounds[1, i] = np.searchsorted(row, first + int(sizes[i]))
    return bounds


def assemble(
    document_ids: pa.Array,
    tokens: Ragged,
    sentence_starts: np.ndarray,
    offsets: np.ndarray,
    lengths: np.ndarray,
    row_offsets: np.ndarray,
    uses: np.ndarray | None = None,
    cluster_ids: np.ndarray | None = None,
) -> SequenceBatch:
    """Assemble n rows from p parts; ``offsets``, ``row_offsets`` and ``uses`` are as in ``Cuts``.

    ``tokens``: p rows of uint16 or int32; the result has the same flat values. ``sentence_starts``: ``(sentences,)``
    positions in the flat tokens, ascending; starts of parts need not be included. ``lengths``: ``(p,)`` tokens of each
    part's whole document. ``uses``: None if each document is used once. ``cluster_ids``: ``(n,)`` int64, or None.
    """
    tokens = tokens.compact()
    row_offsets = np.asarray(row_offsets, np.int64)
    count = len(row_offsets) - 1
    part_starts = tokens.offsets[:-1]
    token_offsets = tokens.offsets[row_offsets]  # (n + 1,) of each row in the flat tokens
    row_of_part = np.repeat(np.arange(count), np.diff(row_offsets))
    # a sentence starts at each start from the splitter and at each part: (sentences,) in the flat tokens
    begins = np.concatenate([sentence_starts, part_starts[tokens.lengths > 0]])
    begins = np.sort(begins, kind="stable")  # fast for two sorted runs
    begins = begins[np.append(True, begins[1:] != begins[:-1])[: len(begins)]]
    begins_of_row = np.searchsorted(begins, token_offsets)
    row_of_begin = np.repeat(np.arange(count), np.diff(begins_of_row))

    def by_row(values: np.ndarray) -> Ragged:
        return Ragged(values.astype(np.int32), row_offsets)

    return SequenceBatch(
        sequence_ids=sequence_ids(document_ids.to_pylist(), offsets, tokens.lengths, row_offsets, uses),
        tokens=Ragged(tokens.values, token_offsets),
        document_starts=by_row(part_starts - token_offsets[row_of_part]),
        document_ids=pa.ListArray.from_arrays(pa.array(row_offsets.astype(np.int32)), document_ids),
        document_offsets=by_row(offsets),
        document_lengths=by_row(lengths),
        sentence_starts=Ragged((begins - token_offsets[row_of_begin]).astype(np.int32), begins_of_row.astype(np.int64)),
        cluster_ids=np.full(count, NO_CLUSTER, np.int64) if cluster_ids is None else cluster_ids,
    )


def sequence_ids(
    ids: list[str], offsets: np.ndarray, sizes: np.ndarray, row_offsets: np.ndarray, uses: np.ndarray | None = None
) -> np.ndarray:
    """Hash each row's parts (id, offset, size) with blake2b, ``(rows, 16)`` uint8.

    If the first part's document was used before, the number of earlier uses is hashed too, so that rows with equal
    parts have distinct ids. The arguments are as in ``Cuts``.
    """
    parts = zip(ids, offsets.tolist(), sizes.tolist(), strict=True)
    names = [f"{name}\0{offset}\0{size}\n" for name, offset, size in parts]
    digests = []
    for first, last in pairwise(row_offsets.tolist()):
        use = f"use {uses[first]}\n" if uses is not None and uses[first] else ""
        text = "".join(names[first:last]) + use
        digests.append(hashlib.blake2b(text.encode(), digest_size=16).digest())
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)
