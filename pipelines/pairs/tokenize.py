"""Stage *read* of `farspan pairs`: read raw pairs, find their documents, tokenise queries and targets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpora.keyed import id_keys, make_key
from corpora.readers import RAW_BYTES, ReadOptions, Reject
from corpora.readers.options import PAIRS_OF
from corpora.readers.raw_tasks import RawPair, find_split_name
from corpora.readers.selection import load_reader
from corpora.schemas.documents import rows_with_special_tokens
from corpora.schemas.pairs import SPLITS, pairs_schema
from corpora.schemas.sequences import token_dtype
from corpora.storage.manifest import Receipt
from corpora.storage.ragged import Ragged
from corpora.storage.shards import StoredShard, write_shard
from corpora.tokenizers.protocol import Tokenizer
from pipelines.documents.ranges import ReadRanges
from pipelines.documents.shard import RejectsShard, plain
from pipelines.engine.artefacts import artefact_tokenizer
from pipelines.engine.job import Report, Task
from pipelines.shuffle.intermediate import read_array, write_array, write_checksum

ROWS_PER_BATCH = 1024
PLACE = (pa.field("source", pa.string()), pa.field("path", pa.string()), pa.field("record", pa.string()))
"""Further columns of unmerged rows, beside those of pairs: the origin of each, for messages."""
_KEY = make_key(0, "pairs")


def unmerged_schema(vocab_size: int) -> pa.Schema:
    """Columns of unmerged rows, one row for each record."""
    return pa.schema([*pairs_schema(vocab_size), *PLACE])


def index_documents(task: Task, report: Report) -> Receipt:
    """Write the hash of each document's id, ``(n, 2)`` uint64 in the order of a shard's rows."""
    source: StoredShard = task.payload["documents"]
    ids = [name for batch in source.batches() for name in batch.column("document_id").to_pylist()]
    write_array(task.payload["hashes"], id_keys(_KEY, ids))
    return Receipt(task.name)


@lru_cache(maxsize=1)
def _document_index(paths: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Read the hashes of all document ids, sorted, ``(n, 2)`` uint64, and the row of each, ``(n,)`` int64."""
    keys = np.concatenate([np.empty((0, 2), np.uint64), *(read_array(path) for path in paths)])
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    return keys[order], order


def find_documents(index: tuple[np.ndarray, np.ndarray], ids: Sequence[str]) -> np.ndarray:
    """Look up the row of each document, ``(n,)`` int64; -1 for one that does not exist."""
    keys, rows = index
    wanted = id_keys(_KEY, ids)
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    places = np.minimum(np.searchsorted(keys[:, 0], wanted[:, 0]), len(keys) - 1)
    return np.where((keys[places] == wanted).all(axis=1), rows[places], -1)


class ReadPair(NamedTuple):
    """A raw pair and its origin."""

    pair: RawPair
    text: str  # as it was read, for messages
    source: str
    path: str
    record: str
    document_ids: list[str]  # in the artefact


Fault = tuple[str, str]
"""Reason of a reject, and its explanation."""


@dataclass(frozen=True)
class ReadPairs:
    """Read the ranges of a task and write its rows, one for each record, and the task's rejects.

    ``index`` are the files of ``index_documents``.
    """

    output: str
    documents: str
    reads: Mapping[str, ReadOptions]
    split: str
    index: tuple[str, ...]

    def __call__(self, task: Task, report: Report) -> Receipt:
        tokenizer = artefact_tokenizer(self.output)
        path = task.payload["shard"]
        schema = unmerged_schema(tokenizer.vocab_size)
        with (
            RejectsShard.create(self.output, task.name) as rejects,
            write_shard(path, schema, ROWS_PER_BATCH) as (writer, info),
        ):
            reading = ReadRanges(self.reads, rejects)
            for read in self._pairs(reading, task, report):
                batch, faults = self._rows(read, tokenizer)
                for one, (reason, detail) in faults:
                    raw = one.text.encode()[:RAW_BYTES]
                    rejects.write(one.source, one.path, [Reject(one.path, one.record, reason, raw, detail)])
                    reading.counts[one.source]["rejected"] += 1
                writer.write(batch)
        write_checksum(path, info[0])
        counts, damage = plain(reading.counts), plain(reading.damage)
        return Receipt(task.name, counts=counts, rejects=dict(rejects.reasons), damage=damage)

    def _pairs(self, reading: ReadRanges, task: Task, report: Report) -> Iterator[list[ReadPair]]:
        """Iterate over the readable pairs of a task in blocks."""
        for source, name, block in reading.blocks(task.payload["ranges"], report):
            by_place = load_reader(str(self.reads[source].format)).keyed_by_place
            prefix = f"{source}:{name}:" if by_place else f"{source}:"
            pairs = [RawPair.from_json(text) for text in block.texts]
            yield [
                ReadPair(pair, text, source, name, key, [prefix + document for document in pair.documents])
                for pair, text, key in zip(pairs, block.texts, block.keys, strict=True)
            ]

    def _rows(
        self, read: Sequence[ReadPair], tokenizer: Tokenizer
    ) -> tuple[pa.RecordBatch, list[tuple[ReadPair, Fault]]]:
        """Turn the good pairs of a block into rows; also return the bad pairs, with their faults."""
        ids = list(dict.fromkeys(name for one in read for name in one.document_ids))
        rows = dict(zip(ids, find_documents(_document_index(self.index), ids).tolist(), strict=True))
        checked = [(one, self._fault(one, rows)) for one in read]
        good = [one for one, fault in checked if fault is None]
        batch, special = tokenize_pairs(good, rows, self.split, tokenizer)
        detail = "the tokenizer takes a part of a text for a special token; use another kind of tokenizer"
        faults = [(one, fault) for one, fault in checked if fault is not None]
        faults += [(good[row], ("special_token", detail)) for row in np.flatnonzero(special).tolist()]
        return batch.filter(pa.array(~special)), faults

    def _fault(self, one: ReadPair, rows: Mapping[str, int]) -> Fault | None:
        """Return the first reason to reject a pair; None for a good one."""
        pair, split = one.pair, split_of(one.pair, self.split)
        if split is None:
            why = f"its split is {pair.split!r}" if pair.split else "neither record nor file name has its split"
            return "unknown_split", f"{why}; splits are {', '.join(SPLITS)}; --split gives all pairs one, or draws it"
        if split != "test" and not targets_of(pair):
            name = "a drawn split" if split == "" else f"split {split}"
            why = f"pair {pair.pair_id!r} has no answer, and pairs of {name} need one"
            return "no_reference", f"{why}{self._hint(one)}"
        for name in one.document_ids:
            if rows[name] < 0:
                why = f"no document {name!r} in {self.documents}"
                return "no_such_document", f"{why}: it was left out, or the documents were made from other data"
        return None

    def _hint(self, one: ReadPair) -> str:
        """Name the fields that may hold the answer, for pairs in the user's own format."""
        if self.reads[one.source].format != f"{PAIRS_OF}pairs" or not one.pair.attributes:
            return ""
        return f"; its other fields: {', '.join(one.pair.attributes)}; name that of the answer with --reference-field"


def split_of(pair: RawPair, choice: str) -> str | None:
    """Return ``train``, ``validation`` or ``test``; empty if it is to be drawn, None if the data names no known one."""
    if choice != "data":
        return "" if choice == "draw" else choice
    return find_split_name(pair.split or "")


def targets_of(pair: RawPair) -> list[str]:
    """The texts to train on, without blank ones."""
    return [text for text in pair.targets if text.strip()]


def references_of(pair: RawPair) -> list[str]:
    """The texts to compare predictions with, without blank ones."""
    return targets_of(pair) if pair.references is None else [text for text in pair.references if text.strip()]


def tokenize_pairs(
    read: Sequence[ReadPair], rows: Mapping[str, int], choice: str, tokenizer: Tokenizer
) -> tuple[pa.RecordBatch, np.ndarray]:
    """Turn n pairs into n rows of ``unmerged_schema``, and ``(n,)`` bool: the texts contain a special token.

    ``rows`` has each document's row by its id; ``choice`` is the option ``split``.
    """
    pairs = [one.pair for one in read]
    targets = [targets_of(pair) for pair in pairs]
    options = [list(pair.options or ()) for pair in pairs]
    columns = [_encode(tokenizer, lists) for lists in ([[pair.query] for pair in pairs], targets, options)]
    special = np.zeros(len(pairs), bool)
    for tokens, lists in columns:
        texts = np.flatnonzero(rows_with_special_tokens(tokens, tokenizer.owned_tokens))
        special[np.searchsorted(lists, texts, side="right") - 1] = True
    schema = unmerged_schema(tokenizer.vocab_size)
    kind = schema.field("query").type
    nested = [
        pa.ListArray.from_arrays(pa.array(lists, pa.int32()), tokens.to_arrow(kind), type=pa.list_(kind))
        for tokens, lists in columns[1:]
    ]
    free = pa.array([pair.options is None for pair in pairs], pa.bool_())
    values = {
        "pair_id": [pair.pair_id for pair in pairs],
        "document_ids": [one.document_ids for one in read],
        "document_rows": [[rows[name] for name in one.document_ids] for one in read],
        "query": columns[0][0].to_arrow(kind),
        "options": pc.if_else(free, pa.scalar(None, nested[1].type), nested[1]),
        "targets": nested[0],
        "references": [references_of(pair) for pair in pairs],
        "split": [split_of(pair, choice) for pair in pairs],
        "attributes": [json.dumps(dict(pair.attributes), ensure_ascii=False, sort_keys=True) for pair in pairs],
        "source": [one.source for one in read],
        "path": [one.path for one in read],
        "record": [one.record for one in read],
    }
    arrays = [
        value if isinstance(value, pa.Array) else pa.array(value, schema.field(name).type)
        for name, value in values.items()
    ]
    return pa.record_batch(arrays, schema=schema), special


def _encode(tokenizer: Tokenizer, texts: Sequence[Sequence[str]]) -> tuple[Ragged, np.ndarray]:
    """Encode all texts of n lists; also return ``(n + 1,)`` int64, the first text of each list."""
    tokens = tokenizer.encode([text for inner in texts for text in inner])
    lists = np.cumsum([0, *map(len, texts)])
    return Ragged(tokens.values.astype(token_dtype(tokenizer.vocab_size)), tokens.offsets), lists
