"""Check of the rows of pairs, and of the documents that they name."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from corpora.schemas.pairs import PAIR_TOTALS, SPLITS, PairSet, add_pair_totals
from corpora.storage.ragged import Ragged
from corpora.verify.rows import Check, Problems, check_token_range


class PairsCheck(Check):
    """Check of rows of pairs."""

    def __init__(self, pairs: PairSet) -> None:
        super().__init__(pairs.manifest)
        self.schema, self._documents = pairs.schema, pairs.documents
        self.counted = dict.fromkeys(PAIR_TOTALS, 0)
        self._seen: set[str] = set()
        self._splits: dict[int, set[str]] = {}  # document row -> splits of its pairs

    def batch(self, place: str, batch: pa.RecordBatch) -> Problems:
        faults = [*self._tokens(place, batch), *self._pairs(place, batch), *self._places(place, batch)]
        yield from faults
        if not faults:
            add_pair_totals(self.counted, batch)

    def end(self) -> Problems:
        """Count the documents, which not every manifest of pairs does."""
        several = sum(len(splits) > 1 for splits in self._splits.values())
        counts = {"documents": len(self._splits), "documents_in_several_splits": several}
        self.counted |= {name: value for name, value in counts.items() if name in self.manifest.totals}
        return super().end()

    def _tokens(self, place: str, batch: pa.RecordBatch) -> Problems:
        for name in ("query", "options", "targets"):
            column = batch.column(name)
            lists = column if name == "query" else column.flatten()
            yield from check_token_range(f"{place} {name}", Ragged.from_arrow(lists), self.manifest)

    def _pairs(self, place: str, batch: pa.RecordBatch) -> Problems:
        names = ("pair_id", "split", "targets", "references", "attributes")
        columns = [batch.column(name) for name in names]
        counts = [column.value_lengths().to_pylist() for column in columns[2:4]]
        rows = zip(columns[0].to_pylist(), columns[1].to_pylist(), *counts, columns[4].to_pylist(), strict=True)
        for row, (pair, split, targets, references, attributes) in enumerate(rows):
            if pair in self._seen:
                yield f"{place} row {row}: pair id {pair!r} occurs twice"
            self._seen.add(pair)
            if split not in SPLITS:
                yield f"{place} row {row}: split {split!r} is none of {', '.join(SPLITS)}"
            elif split != "test" and not (targets and references):
                yield f"{place} row {row}: pair {pair!r} of split {split} has no target or no reference"
            if not _is_object(attributes):
                yield f"{place} row {row}: attributes are not a JSON object"

    def _places(self, place: str, batch: pa.RecordBatch) -> Problems:
        """Compare the ids of documents with those in the rows that ``document_rows`` names."""
        rows = Ragged.from_arrow(batch.column("document_rows")).compact()
        ids = batch.column("document_ids")
        if (rows.lengths != ids.value_lengths().to_numpy()).any() or (rows.lengths == 0).any():
            yield f"{place}: document_ids and document_rows have different lengths, or name no document"
            return
        if len(rows.values) and not 0 <= rows.values.min() <= rows.values.max() < len(self._documents):
            yield f"{place}: document rows {rows.values.min()}..{rows.values.max()} of {len(self._documents)} documents"
            return
        distinct = np.unique(rows.values)
        names = self._documents.take(distinct).column("document_id").to_pylist() if len(distinct) else []
        known = dict(zip(distinct.tolist(), names, strict=True))
        stated = zip(ids.flatten().to_pylist(), rows.values.tolist(), strict=True)
        splits = np.repeat(batch.column("split").to_numpy(zero_copy_only=False), rows.lengths).tolist()
        for (name, row), split in zip(stated, splits, strict=True):
            if known[row] != name:
                yield f"{place}: row {row} of the documents is {known[row]!r}, not {name!r}"
            self._splits.setdefault(row, set()).add(split)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
