"""Lengths of pairs and of their documents, computed without reading tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpora.schemas.pairs import PairSet
from corpora.storage.ragged import Ragged


@dataclass(frozen=True)
class PairLengths:
    """Lengths of the n pairs of an artefact and of the m documents that they are about, in tokens.

    Attributes:
        queries: ``(n,)`` int64.
        document_rows: n rows, the documents of each pair.
        targets: int64, targets of all pairs one after the other.
        target_starts: ``(n,)`` int64, index of each pair's first target in ``targets``.
        longest_targets: ``(n,)`` int64, 0 for a pair without targets.
        documents: ``(m,)`` int64.
    """

    queries: np.ndarray
    document_rows: Ragged
    targets: np.ndarray
    target_starts: np.ndarray
    longest_targets: np.ndarray
    documents: np.ndarray

    @classmethod
    def of(cls, pairs: PairSet) -> PairLengths:
        """Read the lengths of all pairs and documents.

        The artefacts are opened again without comparing checksums, because little of their files is read.
        """
        rows = PairSet(pairs.folder, pairs.documents.folder)
        batches, counts = list(rows.batches()), rows.target_counts
        targets = _join(batch.column("targets").flatten().value_lengths() for batch in batches)
        longest = np.zeros(len(counts), np.int64)
        np.maximum.at(longest, np.repeat(np.arange(len(counts)), counts), targets)
        return cls(
            queries=_join(batch.column("query").value_lengths() for batch in batches),
            document_rows=Ragged.concatenate(
                [Ragged.from_arrow(batch.column("document_rows")).compact() for batch in batches]
            ),
            targets=targets,
            target_starts=np.cumsum(counts) - counts,
            longest_targets=longest,
            documents=_join(batch.column("tokens").value_lengths() for batch in rows.documents.batches()),
        )

    def documents_of(self, pairs: np.ndarray) -> Ragged:
        """Return the lengths of the documents of each of the ``(k,)`` pairs; k rows."""
        rows = self.document_rows.take(pairs)
        return Ragged(self.documents[rows.values], rows.offsets)

    def targets_of(self, pairs: np.ndarray, numbers: np.ndarray | None) -> np.ndarray:
        """Return the length of one target of each of the ``(k,)`` pairs, ``(k,)`` int64.

        ``pairs``: ``(k,)`` rows of pairs. ``numbers``: ``(k,)`` number of the target in its pair; None for the longest.
        """
        return self.longest_targets[pairs] if numbers is None else self.targets[self.target_starts[pairs] + numbers]


def _join(parts: Iterable[pa.Array]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *(part.to_numpy() for part in parts)]).astype(np.int64)
