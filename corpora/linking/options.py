"""Options of linking: policy, order and limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from corpora.errors import FarspanError


@dataclass(frozen=True, kw_only=True)
class Linking:
    """Selection and order of the documents in a sequence.

    Attributes:
        policy: ``nearest``: neighbours of a sequence's seed; ``chain``: neighbours of the last document added;
            ``path``: one path through all documents.
        order: order of documents inside a sequence. ``seed``: by descending similarity to the seed, documents outside
            its list last; ``chain``: in the order of addition; ``shuffle``: by keys. A path has no seeds, so ``seed``
            means ``chain`` there.
        max_uses: number of sequences that a document may be in; ``path`` uses each document once.
        min_similarity: neighbours with a lower inner product are ignored (default: none).
        max_cosine: documents with a higher cosine are near-duplicates and never share a sequence (default: none).
        max_jaccard: documents with a higher Jaccard similarity of word 5-grams are near-duplicates, too.
        min_fill: minimum share of a sequence's capacity that is filled. Emptier sequences are dissolved, and their
            documents count as unused; the sequences of one long document are kept or dissolved together. With
            ``path`` only the last sequence can be emptier, and it is kept.
    """

    policy: Literal["nearest", "chain", "path"] = "nearest"
    order: Literal["seed", "chain", "shuffle"] = "seed"
    max_uses: int = 2
    min_similarity: float | None = None
    max_cosine: float | None = None
    max_jaccard: float | None = 0.8
    min_fill: float = 0.5

    def __post_init__(self) -> None:
        if self.max_uses < 1:
            raise FarspanError(f"--max-uses {self.max_uses}: must be at least 1")
        if self.min_similarity is not None and not math.isfinite(self.min_similarity):
            raise FarspanError(f"--min-similarity {self.min_similarity}: must be a finite number")
        if self.max_cosine is not None and not -1 <= self.max_cosine <= 1:
            raise FarspanError(f"--max-cosine {self.max_cosine}: must lie between -1 and 1")
        for flag, share in (("--max-jaccard", self.max_jaccard), ("--min-fill", self.min_fill)):
            if share is not None and not 0 <= share <= 1:
                raise FarspanError(f"{flag} {share}: must lie between 0 and 1")

    @property
    def resolved(self) -> Linking:
        """These options with neutral values for those that the policy ignores; equal results build equal rows."""
        if self.policy != "path":
            return self
        return replace(self, order="chain" if self.order == "seed" else self.order, max_uses=1, min_fill=0.0)

    @property
    def floor(self) -> float:
        """Minimum similarity of neighbours."""
        return -math.inf if self.min_similarity is None else self.min_similarity
