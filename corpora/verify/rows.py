"""Checks of the rows of documents, of a corpus and of predictions, batch by batch."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from corpora.keyed import id_keys, make_key
from corpora.schemas.corpus import DocumentUse
from corpora.schemas.documents import DOCUMENT_TOTALS, add_document_totals, documents_schema, has_titles
from corpora.schemas.predictions import PREDICTION_TOTALS, add_prediction_totals, predictions_schema
from corpora.schemas.sequences import SequenceBatch, corpus_schema
from corpora.storage.arrow_views import items, numbers
from corpora.storage.manifest import Manifest
from corpora.storage.ragged import Ragged
from corpora.tokenizers.protocol import special_ids

Problems = Iterator[str]


class Check(ABC):
    """A check of an artefact, shard by shard; made from its manifest."""

    schema: pa.Schema  # of every shard
    counted: dict[str, int]  # totals of the rows seen so far, to compare with those of the manifest

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def shard(self, name: str, batches: list[pa.RecordBatch]) -> Problems:
        """Report problems of the rows of a shard."""
        for number, batch in enumerate(batches):
            yield from self.batch(f"{name} batch {number}", batch)

    @abstractmethod
    def batch(self, place: str, batch: pa.RecordBatch) -> Problems:
        """Report problems of the rows of a record batch."""

    def end(self) -> Problems:
        """Report problems that can be found only when all shards have been checked."""
        return iter(())


class DocumentsCheck(Check):
    """Check of rows of documents."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.schema = documents_schema(manifest.tokenizer["vocab_size"], has_titles(manifest))
        self.counted = dict.fromkeys(DOCUMENT_TOTALS, 0)
        self._keys: set[bytes] = set()  # hashes of ids, which are much smaller than ids

    def batch(self, place: str, batch: pa.RecordBatch) -> Problems:
        tokens = Ragged.from_arrow(batch.column("tokens"))
        yield from check_token_range(place, tokens, self.manifest)
        yield from check_ascending(
            place, "sentence_starts", Ragged.from_arrow(batch.column("sentence_starts")), tokens.lengths
        )
        for document in batch.column("document_id").to_pylist():
            key = hashlib.blake2b(document.encode(), digest_size=16).digest()
            if key in self._keys:
                yield f"{place}: document id {document!r} occurs twice"
            self._keys.add(key)
        add_document_totals(self.counted, batch)


class CorpusCheck(Check):
    """Check of rows of a corpus, and of the parts of each document together."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.schema = corpus_schema(manifest.tokenizer["vocab_size"])
        self._use = DocumentUse.of(manifest)
        self._sequences: set[bytes] = set()
        names = ("sequences", "tokens", "documents", "parts", "max_tokens", "max_documents")
        self.counted = dict.fromkeys(names, 0)
        self._parts: list[_Parts] = []

    def batch(self, place: str, batch: pa.RecordBatch) -> Problems:
        rows = SequenceBatch.from_arrow(batch)
        yield from self._rows(place, rows)
        columns = [batch.column(name) for name in ("document_ids", "document_offsets", "document_lengths")]
        if all((np.diff(numbers(column.offsets)) == rows.document_starts.lengths).all() for column in columns):
            self._parts.append(_Parts.of(place, rows))
        else:
            yield f"{place}: the lists of parts have different lengths"

    def shard(self, name: str, batches: list[pa.RecordBatch]) -> Problems:
        yield from super().shard(name, batches)
        if self._use.one_shard:  # later shards have no parts of these documents
            yield from self._coverage()

    def end(self) -> Problems:
        yield from self._coverage()
        filtered = sum(count["filtered"] for count in self.manifest.counts.values())
        if filtered and self._use.left_out is None:
            yield f"manifest.json: {filtered} documents are left out, though document_use.left_out is null"

    def _coverage(self) -> Problems:
        """Report documents whose parts seen since the last call do not add up."""
        parts, self._parts = self._parts, []
        if not parts:
            return
        keys, offsets, sizes, lengths = (np.concatenate([getattr(p, f.name) for p in parts]) for f in _COLUMNS)
        _, documents = np.unique(keys, return_inverse=True)
        self.counted["documents"] += int(documents.max(initial=-1)) + 1
        use = self._use
        edges = np.cumsum([len(p.keys) for p in parts])
        for part, fault in find_gaps(documents, offsets, sizes, lengths, use.overlap, use.truncated):
            block = int(np.searchsorted(edges, part, side="right"))
            yield parts[block].describe(part - int(edges[block] - len(parts[block].keys))) + f" {fault}"
        uses = np.bincount(documents[offsets == 0])
        if use.max_uses is not None and uses.max(initial=0) > use.max_uses:
            yield f"a document is used {uses.max()} times, max_uses is {use.max_uses}"

    def _rows(self, place: str, batch: SequenceBatch) -> Problems:
        lengths = batch.tokens.lengths
        parts = batch.document_starts.lengths
        yield from check_token_range(place, batch.tokens, self.manifest)
        yield from check_ascending(place, "document_starts", batch.document_starts, lengths)
        yield from check_ascending(place, "sentence_starts", batch.sentence_starts, lengths)
        reserved = self.manifest.config["room_per_sequence"] + self.manifest.config["room_per_document"] * parts
        for row in np.flatnonzero(lengths + reserved > self.manifest.config["sequence_length"]).tolist():
            added = reserved[row]
            yield f"{place} row {row}: {lengths[row]} tokens and {added} reserved positions exceed the sequence length"
        for row in range(len(batch)):
            if len(np.setdiff1d(batch.document_starts[row], batch.sentence_starts[row])):
                yield f"{place} row {row}: a part starts where no sentence starts"
            if batch.sequence_id(row) in self._sequences:
                yield f"{place} row {row}: sequence_id {batch.sequence_id(row).hex()} occurs twice"
            self._sequences.add(batch.sequence_id(row))
        self.counted["sequences"] += len(batch)
        self.counted["tokens"] += int(lengths.sum())
        self.counted["parts"] += int(parts.sum())
        self.counted["max_tokens"] = max(self.counted["max_tokens"], int(lengths.max(initial=0)))
        self.counted["max_documents"] = max(self.counted["max_documents"], int(parts.max(initial=0)))


@dataclass(frozen=True)
class _Parts:
    """The parts of a batch of rows: 64-bit hash of the document's id, offset, size and whole length, ``(p,)`` each."""

    place: str
    batch: SequenceBatch
    keys: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, place: str, batch: SequenceBatch) -> _Parts:
        tokens, starts = batch.tokens.compact(), batch.document_starts.compact()
        flat = starts.values + np.repeat(tokens.offsets[:-1], starts.lengths)
        keys = id_keys(_KEY, items(batch.document_ids).to_pylist())[:, 0]
        offsets, lengths = (r.compact().values for r in (batch.document_offsets, batch.document_lengths))
        return cls(place, batch, keys, offsets, np.diff(np.append(flat, tokens.offsets[-1])), lengths)

    def describe(self, part: int) -> str:
        row = int(np.searchsorted(self.batch.document_starts.compact().offsets, part, side="right")) - 1
        name = items(self.batch.document_ids)[part].as_py()
        return f"{self.place} row {row}: part of document {name!r}"


_COLUMNS = fields(_Parts)[2:]
_KEY = make_key(0, "verification")


def check_token_range(place: str, tokens: Ragged, manifest: Manifest) -> Problems:
    """Yield a problem if token ids are outside the vocabulary, or if special tokens are stored as text."""
    values = tokens.compact().values
    if len(values) and not 0 <= int(values.min()) <= int(values.max()) < manifest.tokenizer["vocab_size"]:
        yield f"{place}: token ids {values.min()}..{values.max()} are not all in the vocabulary"
    owned = manifest.tokenizer["owned_tokens"]
    places = np.flatnonzero(np.isin(values, special_ids(owned)))  # positions among all tokens of the batch
    if len(places):
        row = int(np.searchsorted(tokens.compact().offsets, places[0], side="right")) - 1
        name, number = next(entry for entry in owned.items() if entry[1] == values[places[0]] and entry[0] != "<unk>")
        yield (
            f"{place} row {row}: {name} (id {number}) is stored as text, as are {len(places) - 1} more special tokens "
            "of the batch; make the documents again, from the raw text"
        )


def check_ascending(place: str, column: str, starts: Ragged, lengths: np.ndarray) -> Problems:
    """Report rows whose starts do not ascend strictly from 0, or are outside the row's tokens."""
    starts = starts.compact()
    rows = np.repeat(np.arange(len(starts)), starts.lengths)
    same_row = rows[1:] == rows[:-1]
    bad = rows[1:][same_row & (np.diff(starts.values) <= 0)].tolist()
    bad += rows[(starts.values < 0) | (starts.values >= lengths[rows])].tolist()
    has_tokens = lengths > 0
    if (starts.lengths[has_tokens] == 0).any():
        bad += np.flatnonzero(has_tokens & (starts.lengths == 0)).tolist()
    filled = starts.lengths > 0
    bad += np.flatnonzero(filled)[starts.values[starts.offsets[:-1][filled]] != 0].tolist()
    for row in sorted(set(bad)):
        yield f"{place} row {row}: {column} do not ascend from 0 inside the row"


class PredictionsCheck(Check):
    """Check of rows of predictions."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._vocab_size = manifest.config["model"]["vocab_size"]
        self.schema = predictions_schema(self._vocab_size)
        self.counted = dict.fromkeys(PREDICTION_TOTALS, 0)
        self._seen: set[str] = set()

    def batch(self, place: str, batch: pa.RecordBatch) -> Problems:
        tokens = Ragged.from_arrow(batch.column("tokens")).compact()
        if len(tokens.values) and int(tokens.values.max()) >= self._vocab_size:
            yield f"{place}: token {tokens.values.max()} is outside the model's vocabulary of {self._vocab_size}"
        for row in np.flatnonzero(~np.isfinite(batch.column("score").to_numpy())).tolist():
            yield f"{place} row {row}: the score is not finite"
        for pair in batch.column("pair_id").to_pylist():
            if pair in self._seen:
                yield f"{place}: pair {pair!r} has two predictions"
            self._seen.add(pair)
        add_prediction_totals(self.counted, batch)


def find_gaps(
    documents: np.ndarray,
    offsets: np.ndarray,
    sizes: np.ndarray,
    lengths: np.ndarray,
    overlap: int = 0,
    may_be_cut: bool = False,
) -> list[tuple[int, str]]:
    """Find documents whose parts do not add up.

    A document may be used several times, cut differently each time. It is complete if at every position inside it as
    many parts start as end. If parts may share ``overlap`` tokens with the previous one, every start needs an end at
    the same position or that many tokens later, and every end a start.

    ``documents``, ``offsets``, ``sizes``: ``(p,)`` document, start and length of each part. ``lengths``: ``(p,)``
    tokens of its whole document. Returns one (part, fault) for each document with a fault, in order of documents.
    """
    faults: dict[int, tuple[int, str]] = {}

    def note(parts: np.ndarray, text: str, *values: np.ndarray) -> None:
        for part, *figures in zip(parts.tolist(), *(column.tolist() for column in values), strict=True):
            faults.setdefault(int(documents[part]), (part, text.format(*figures)))

    ends = offsets.astype(np.int64) + sizes
    outside = np.flatnonzero((sizes <= 0) | (offsets < 0) | (ends > lengths))
    note(outside, "holds tokens {} to {} of a document of {}", offsets[outside], ends[outside], lengths[outside])
    order = np.argsort(documents, kind="stable")
    same = documents[order][1:] == documents[order][:-1]
    differ = order[1:][same & (lengths[order][1:] != lengths[order][:-1])]
    note(differ, "has a document of {} tokens, for which another part gives another length", lengths[differ])

    begins = np.flatnonzero(offsets > 0)
    stops = np.flatnonzero(ends < lengths)
    compare = _find_unmatched if overlap else _find_unbalanced
    wide = int(lengths.max(initial=0)) + overlap + 1
    names = documents.astype(np.int64) * wide  # plus a position in the document, this is one number for both
    lone_begins, lone_stops = compare(names[begins] + offsets[begins], names[stops] + ends[stops], overlap)
    begins, stops = begins[lone_begins], stops[lone_stops]
    note(begins, "continues at token {}, where no part of the document before it ends", offsets[begins])
    if not may_be_cut:
        note(stops, "ends at token {} of a document that is not continued", ends[stops])
    return [faults[document] for document in sorted(faults)]


def _find_unbalanced(begins: np.ndarray, stops: np.ndarray, _: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(b,)`` and ``(s,)`` bool: starts where more parts start than end, and ends where more end than start."""
    places, events = np.unique(np.concatenate([begins, stops]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(places)) for part in (events[: len(begins)], events[len(begins) :])]
    balance = (counts[0] - counts[1])[events]
    return balance[: len(begins)] > 0, balance[len(begins) :] < 0


def _find_unmatched(begins: np.ndarray, stops: np.ndarray, overlap: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(b,)`` and ``(s,)`` bool: starts without an end there or ``overlap`` later, and ends for the reverse."""
    return (
        ~(np.isin(begins, stops) | np.isin(begins + overlap, stops)),
        ~(np.isin(stops, begins) | np.isin(stops - overlap, begins)),
    )
