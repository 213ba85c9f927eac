"""Linking policies: building sequences of related documents from the neighbours in a cluster.

``nearest`` and ``chain`` build one sequence at a time: documents that are in no sequence yet become seeds, in the order
of their keys, and a sequence takes neighbours of its *query* while they fit. With ``nearest``, the query is the seed
(BART-LS, arXiv 2209.10052, appendix A). With ``chain``, it is the document added last (BART-LS's code), or if none of
its neighbours can be taken, the one added before it, and so on back to the seed. A document longer than a sequence
fills whole sequences by itself; its rest starts another one, which is filled with neighbours.

``path`` is one walk through all documents (``corpora.linking.path``), cut into full sequences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from corpora.compiled import compiled
from corpora.errors import FarspanError
from corpora.keyed import philox_blocks
from corpora.linking.graph import Graph
from corpora.linking.greedy import Limits, document_groups
from corpora.linking.options import Linking
from corpora.linking.path import document_path
from corpora.packing.concatenate import greedy_parts
from corpora.packing.options import Packing
from corpora.storage.ragged import Ragged


@dataclass(frozen=True)
class Linked:
    """Sequences as pieces of documents, and the documents that are in none.

    Each sequence has a document, or a piece of one, that no earlier sequence has. A similarity is to the document whose
    neighbour a piece's document is, if that is in the sequence; nan for seeds, for continuations, and for the first
    piece of a sequence or a path. Leftovers are the first document by key of each family without a document in a
    sequence (one without near-duplicates is a family by itself); ``repeated`` are the other documents in no sequence.
    Refused are, for ``nearest`` and ``chain``, documents of which a sequence contained one and therefore did not take
    the other; for ``path``, all near-duplicates that are neighbours; and each of ``repeated`` with what it repeats.
    """

    parts: Ragged  # one row per sequence, document numbers (int64) in the order inside the sequence
    offsets: np.ndarray  # (parts,) int32, start of the piece in its document
    sizes: np.ndarray  # (parts,) int32, tokens of the piece
    similarities: np.ndarray  # (parts,) float32
    leftovers: np.ndarray  # (l,) int64, ascending
    repeated: np.ndarray  # (r,) int64, ascending
    uses: np.ndarray  # (n,) int32, number of uses of each whole document
    refused: np.ndarray  # (m, 2) int64, pairs of near-duplicates, the lower number first, ascending


def link(graph: Graph, lengths: np.ndarray, keys: np.ndarray, packing: Packing, linking: Linking) -> Linked:
    """Build the sequences of one cluster from documents of ``(n,)`` tokens.

    Those that ``packing`` does not keep become leftovers. ``nearest`` and ``chain`` split only documents that exceed a
    sequence; the last sequence of a path is kept even if it is nearly empty. ``keys``, ``(n, 2)`` uint64
    (``corpora.keyed.id_keys``), decide what lists of neighbours leave open, so the result does not depend on how the
    documents are numbered.
    """
    n = len(graph.neighbours)
    if len(lengths) != n or len(keys) != n:
        raise FarspanError(f"{n} documents have neighbours, {len(lengths)} have lengths and {len(keys)} have keys")
    graph.check()
    lengths = lengths.astype(np.int64)
    order, families = np.lexsort((keys[:, 1], keys[:, 0])), graph.families()
    build = _walk_rows if linking.policy == "path" else _grow_rows
    pieces, refused = build(graph, families, lengths, order, packing, linking)
    if linking.order == "shuffle":
        pieces = pieces.sort_pieces(shuffle_draws(keys[pieces.documents.values], pieces.documents.offsets))
    uses = np.bincount(pieces.documents.values[pieces.offsets == 0], minlength=len(lengths))
    repeated = _find_repeated(families, uses, order)  # (r, 2)
    left = uses == 0
    left[repeated[:, 0]] = False
    return Linked(
        parts=pieces.documents,
        offsets=pieces.offsets.astype(np.int32),
        sizes=pieces.sizes.astype(np.int32),
        similarities=pieces.similarities,
        leftovers=np.flatnonzero(left),
        repeated=repeated[:, 0],
        uses=uses.astype(np.int32),
        refused=np.unique(np.sort(np.concatenate([refused, repeated]), axis=1), axis=0),
    )


class _Pieces(NamedTuple):
    """Sequences, one row of documents each, with the offset, size and similarity of every piece."""

    documents: Ragged
    offsets: np.ndarray
    sizes: np.ndarray
    similarities: np.ndarray

    def sort_pieces(self, values: np.ndarray) -> _Pieces:
        """Sort the pieces of every row by values ``(pieces,)``, ascending and stable."""
        rows = np.repeat(np.arange(len(self.documents)), self.documents.lengths)
        by = np.lexsort((values, rows))
        documents = Ragged(self.documents.values[by], self.documents.offsets)
        return _Pieces(documents, self.offsets[by], self.sizes[by], self.similarities[by])


def _grow_rows(
    graph: Graph, families: np.ndarray, lengths: np.ndarray, order: np.ndarray, packing: Packing, linking: Linking
) -> tuple[_Pieces, np.ndarray]:
    """Build sequences by ``nearest`` or ``chain``; return also the pairs of near-duplicates that were kept apart."""
    kept, piece = packing.keeps(lengths), packing.capacity - packing.room_per_document
    whole = np.maximum(lengths - 1, 0) // piece  # pieces that fill a sequence alone; the rest is never empty
    limits = Limits(
        capacity=packing.capacity,
        room_per_document=packing.room_per_document,
        least=math.ceil(linking.min_fill * packing.capacity),
        max_uses=linking.max_uses,
        min_similarity=linking.floor,
        chain=linking.policy == "chain",
    )
    lists = graph.neighbours
    groups = document_groups(
        lists,
        graph.similarities,
        families,
        sizes=lengths - whole * piece,
        seeds=order[kept[order]],
        candidates=kept & (whole == 0),
        limits=limits,
    )
    # a seed occurs once per piece, and each piece starts a sequence; the group fills the last one
    is_seed = np.zeros(len(groups.similarities), bool)
    is_seed[groups.documents.offsets[:-1]] = True
    copies = 1 + is_seed * whole[groups.documents.values]
    # number of each piece in its document
    number = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
    documents, begins = np.repeat(groups.documents.values, copies), np.repeat(is_seed, copies)
    pieces = _Pieces(
        documents=Ragged(documents, np.append(np.flatnonzero(begins), len(begins))),
        offsets=number * piece,
        sizes=np.minimum(lengths[documents] - number * piece, piece),
        similarities=np.repeat(groups.similarities, copies),
    )
    if linking.policy == "chain" and linking.order == "seed":
        pieces = pieces.sort_pieces(
            places_in_first_list(lists.values, lists.offsets, pieces.documents.values, pieces.documents.offsets)
        )
    return pieces, groups.refused


def _walk_rows(
    graph: Graph, families: np.ndarray, lengths: np.ndarray, order: np.ndarray, packing: Packing, linking: Linking
) -> tuple[_Pieces, np.ndarray]:
    """Build sequences by ``path``; return also all pairs of near-duplicates."""
    kept = packing.keeps(lengths)
    path, steps = document_path(graph.neighbours, graph.similarities, families, kept, ranks(order), linking.floor)
    rows, places, offsets, sizes = greedy_parts(
        lengths[path], packing.capacity, packing.room_per_document, packing.packing != "whole-documents"
    )
    documents = Ragged.from_lengths(path[places], np.bincount(rows))
    similarities = np.where(offsets == 0, steps[places], np.float32(np.nan))
    similarities[documents.offsets[:-1]] = np.nan  # the previous document is in another sequence
    return _Pieces(documents, offsets, sizes, similarities), graph.near_duplicate_pairs()


def _find_repeated(families: np.ndarray, uses: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Pair unused documents, ascending, with the member of their family that represents them; ``(r, 2)`` int64.

    The representative is the first used member by key or, if none is used, the first member.
    """
    priority = ranks(order).astype(np.int64) + len(order) * (uses == 0)
    by = np.lexsort((priority, families))
    heads = np.ones(len(by), bool)
    heads[1:] = families[by][1:] != families[by][:-1]
    representatives = np.empty(len(by), np.int64)
    representatives[by] = by[heads][np.cumsum(heads) - 1]
    unused = np.flatnonzero((uses == 0) & (representatives != np.arange(len(by))))
    return np.stack([unused, representatives[unused]], axis=1)


def ranks(order: np.ndarray) -> np.ndarray:
    """Return the position of each document in the order, ``(n,)`` int32."""
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order))
    return places


@compiled
def places_in_first_list(
    lists: np.ndarray, offsets: np.ndarray, documents: np.ndarray, row_offsets: np.ndarray
) -> np.ndarray:
    """Return the position of each document of a row in the neighbour list of the row's first, ``(parts,)`` int64.

    The first document itself has position -1; documents that are not in its list come last.
    """
    places = np.empty(len(documents), np.int64)
    owner, position = np.full(len(offsets) - 1, -1, np.int64), np.empty(len(offsets) - 1, np.int64)
    for row in range(len(row_offsets) - 1):
        first = documents[row_offsets[row]]
        for edge in range(offsets[first], offsets[first + 1]):
            owner[lists[edge]], position[lists[edge]] = row, edge - offsets[first]
        owner[first], position[first] = row, -1
        for part in range(row_offsets[row], row_offsets[row + 1]):
            document = documents[part]
            places[part] = position[document] if owner[document] == row else len(lists)
    return places


@compiled
def shuffle_draws(keys: np.ndarray, row_offsets: np.ndarray) -> np.ndarray:
    """Draw random numbers for the parts of each row, ``(parts,)`` uint64, with the key of the row's first part."""
    draws = np.empty(len(keys), np.uint64)
    for row in range(len(row_offsets) - 1):
        first, end = row_offsets[row], row_offsets[row + 1]
        blocks = np.empty(((end - first + 3) // 4, 4), np.uint64)
        philox_blocks(keys[first, 0], keys[first, 1], np.uint64(1), blocks)
        draws[first:end] = blocks.reshape(-1)[: end - first]
    return draws
