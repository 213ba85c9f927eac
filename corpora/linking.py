"""Linking: from the neighbours of a cluster's documents to sequences of related documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from corpora.concatenation import Packing
from corpora.errors import FarspanError
from corpora.ragged import Ragged

POLICIES = ("nearest", "chain", "path")
ORDERS = ("seed", "chain", "shuffle")


@dataclass(frozen=True)
class Linking:
    """How documents are chosen for a sequence, and in which order they stand in it.

    Attributes:
        policy: ``nearest`` takes the neighbours of the sequence's first document, its seed (BART-LS, appendix A);
            ``chain`` takes those of the last document added (BART-LS's code); ``path`` walks through all documents
            and cuts the walk into sequences (in-context pretraining, arXiv 2310.10638).
        order: of documents inside a sequence: ``seed`` by falling similarity to the seed, ``chain`` as they were
            added, ``shuffle`` by key.
        max_uses: sequences that a document may be in. ``path`` uses each document once.
        min_similarity: neighbours below it are not taken.
        max_cosine, max_jaccard: two documents above either are near-duplicates of each other and kept apart.
        min_fill: a sequence filled to less than this share is taken apart again; its documents are left over.
    """

    policy: str = "nearest"
    order: str = "seed"
    max_uses: int = 2
    min_similarity: float | None = None
    max_cosine: float | None = None
    max_jaccard: float | None = 0.8
    min_fill: float = 0.5

    def __post_init__(self) -> None:
        for flag, value, choices in (("--policy", self.policy, POLICIES), ("--order", self.order, ORDERS)):
            if value not in choices:
                raise FarspanError(f"{flag} {value!r}: choose one of {', '.join(choices)}")
        if self.max_uses < 1:
            raise FarspanError(f"--max-uses {self.max_uses}: must be at least 1")
        if self.min_similarity is not None and not np.isfinite(self.min_similarity):
            raise FarspanError(f"--min-similarity {self.min_similarity}: must be a finite number")
        if self.max_cosine is not None and not -1 <= self.max_cosine <= 1:
            raise FarspanError(f"--max-cosine {self.max_cosine}: must lie between -1 and 1")
        for flag, share in (("--max-jaccard", self.max_jaccard), ("--min-fill", self.min_fill)):
            if share is not None and not 0 <= share <= 1:
                raise FarspanError(f"{flag} {share}: must lie between 0 and 1")


@dataclass(frozen=True)
class Graph:
    """Neighbours of the n documents of one cluster.

    Attributes:
        neighbours: n rows of int32, document numbers, best first.
        similarities: ``(edges,)`` float32, beside ``neighbours.values``.
        near_duplicates: ``(edges,)`` bool: the two documents of the edge are not to meet in a sequence.
    """

    neighbours: Ragged
    similarities: np.ndarray
    near_duplicates: np.ndarray


@dataclass(frozen=True)
class Linked:
    """Sequences as pieces of documents, and what became of the rest.

    Attributes:
        parts: a row a sequence, document numbers (int64) in the order inside the sequence.
        offsets: ``(parts,)`` int32, where the piece begins in its document.
        sizes: ``(parts,)`` int32, tokens of the piece.
        similarities: ``(parts,)`` float32, to the document it was chosen for; nan for seeds and continuations.
        passes: ``(sequences,)`` int32, how many earlier sequences have the same pieces in the same order.
        leftovers: ``(l,)`` int64, documents in no sequence, ascending.
        uses: ``(n,)`` int32, sequences that each document is in.
        refused: ``(m, 2)`` int64, near-duplicates that met as document and candidate and were kept apart.
    """

    parts: Ragged
    offsets: np.ndarray
    sizes: np.ndarray
    similarities: np.ndarray
    passes: np.ndarray
    leftovers: np.ndarray
    uses: np.ndarray
    refused: np.ndarray


def link(graph: Graph, lengths: np.ndarray, keys: np.ndarray, packing: Packing, linking: Linking) -> Linked:
    """Build the sequences of one cluster.

    Args:
        graph: neighbours of n documents.
        lengths: ``(n,)`` tokens of each document; documents without tokens are in no sequence.
        keys: ``(n, 2)`` uint64, one 128-bit key a document (``corpora.keyed.id_keys``): every choice that neighbours
            leave open is made by keys, so that the numbering of the documents does not count.
        packing: the room in a sequence.
        linking: the policy.
    """
    raise NotImplementedError
