"""Check a finished artefact against its manifest and against the contract of docs/formats.md."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from corpora.documents import documents_schema
from corpora.errors import FarspanError
from corpora.files import LocalFiles
from corpora.manifest import Manifest, ShardInfo, read_manifest
from corpora.ragged import Ragged
from corpora.sequences import SequenceBatch, corpus_schema
from corpora.shards import map_shard
from corpora.tokenizers import load_tokenizer

Problems = Iterator[str]


def verify(folder: str) -> list[str]:
    """Every problem of a documents or corpus artefact on local disk; none when it is sound.

    Checked: manifest, tokenizer, checksums, schema, batch sizes, counts, and the meaning of every row; in a corpus also
    that the parts of each document add up.
    """
    manifest = read_manifest(LocalFiles(), folder)
    vocab_size = manifest.tokenizer["vocab_size"]
    if manifest.format == "farspan.documents":
        check: DocumentsCheck | CorpusCheck = DocumentsCheck()
        schema = documents_schema(vocab_size)
    elif manifest.format == "farspan.corpus":
        check, schema = CorpusCheck(manifest), corpus_schema(vocab_size)
    else:
        raise FarspanError(f"{folder}: {manifest.format!r} is not a documents or corpus artefact")
    problems = [*_tokenizer(folder, manifest), *shards(folder, manifest, schema, check)]
    return [*problems, *_totals(manifest, check.counted)]


def shards(
    folder: str, manifest: Manifest, schema: pa.Schema, check: Callable[[Manifest, str, list[pa.RecordBatch]], Problems]
) -> Problems:
    """Structure and checksum of every shard, then ``check`` on the batches of those that are sound."""
    expected = {shard.name for shard in manifest.shards}
    present = {os.path.basename(path) for path in LocalFiles().walk(os.path.join(folder, "shards"))}
    for name in sorted(present - expected):
        yield f"shards/{name}: not in the manifest"
    for shard in manifest.shards:
        if shard.name not in present:
            yield f"shards/{shard.name}: missing"
            continue
        found = list(_structure(folder, manifest, shard, schema))
        yield from found
        if not found:
            reader = map_shard(os.path.join(folder, "shards", shard.name))[1]
            batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
            yield from check(manifest, f"shards/{shard.name}", batches)
    rows = sum(shard.rows for shard in manifest.shards)
    counted = manifest.totals.get("documents" if manifest.format == "farspan.documents" else "sequences")
    if rows != counted:
        yield f"manifest.json: {rows} rows in shards, {counted} in totals"
    for source, count in manifest.counts.items():
        if count["read"] != count["written"] + count["filtered"] + count["rejected"]:
            yield f"manifest.json: counts of {source!r} do not reconcile: {count}"


def _structure(folder: str, manifest: Manifest, shard: ShardInfo, schema: pa.Schema) -> Problems:
    name = f"shards/{shard.name}"
    path = os.path.join(folder, "shards", shard.name)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if (size := os.path.getsize(path)) != shard.bytes:
        yield f"{name}: {size} bytes, the manifest says {shard.bytes}: truncated or replaced"
        return
    if digest != shard.sha256:
        yield f"{name}: sha256 {digest}, the manifest says {shard.sha256}: damaged"
        return
    try:
        reader = map_shard(path)[1]
    except FarspanError as error:
        yield str(error)
        return
    if not reader.schema.equals(schema):
        yield f"{name}: schema is not that of {manifest.format} with {manifest.tokenizer['vocab_size']} ids"
        return
    batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    sizes = [batch.num_rows for batch in batches]
    if sum(sizes) != shard.rows:
        yield f"{name}: {sum(sizes)} rows, the manifest says {shard.rows}"
    tokens = sum(Ragged.from_arrow(b.column("tokens")).lengths.sum() for b in batches if "tokens" in schema.names)
    if tokens != shard.tokens:
        yield f"{name}: {tokens} tokens, the manifest says {shard.tokens}"
    if any(size != manifest.rows_per_batch for size in sizes[:-1]) or sizes[-1:] > [manifest.rows_per_batch]:
        yield f"{name}: batches of {sorted(set(sizes))} rows, the manifest says {manifest.rows_per_batch}"


def _tokenizer(folder: str, manifest: Manifest) -> Problems:
    try:
        found = load_tokenizer(os.path.join(folder, "tokenizer")).fingerprint
    except (FarspanError, OSError) as error:
        yield f"tokenizer/: {error}"
        return
    if found != manifest.tokenizer["fingerprint"]:
        yield f"tokenizer/: fingerprint {found}, the manifest says {manifest.tokenizer['fingerprint']}"


def _totals(manifest: Manifest, counted: Mapping[str, int]) -> Problems:
    for name, value in counted.items():
        if manifest.totals.get(name) != value:
            yield f"manifest.json: totals say {manifest.totals.get(name)} {name}, the shards hold {value}"


class DocumentsCheck:
    """Rows of documents; ``counted`` is what the manifest's totals have to say."""

    def __init__(self) -> None:
        names = ("documents", "tokens", "sentences", "held_out_documents", "held_out_tokens", "max_tokens")
        self.counted = dict.fromkeys(names, 0)
        self._keys: set[bytes] = set()  # of ids, since ids themselves are many times larger

    def __call__(self, manifest: Manifest, name: str, batches: list[pa.RecordBatch]) -> Problems:
        for number, batch in enumerate(batches):
            tokens = Ragged.from_arrow(batch.column("tokens"))
            sentences = Ragged.from_arrow(batch.column("sentence_starts"))
            held = batch.column("held_out").to_numpy(zero_copy_only=False)
            place = f"{name} batch {number}"
            yield from _token_range(place, tokens, manifest)
            yield from _ascending(place, "sentence_starts", sentences, tokens.lengths)
            for document in batch.column("document_id").to_pylist():
                key = hashlib.blake2b(document.encode(), digest_size=16).digest()
                if key in self._keys:
                    yield f"{place}: document id {document!r} occurs twice"
                self._keys.add(key)
            counted = self.counted
            counted["documents"] += len(batch)
            counted["tokens"] += int(tokens.lengths.sum())
            counted["sentences"] += int(sentences.lengths.sum())
            counted["held_out_documents"] += int(held.sum())
            counted["held_out_tokens"] += int(tokens.lengths[held].sum())
            counted["max_tokens"] = max(counted["max_tokens"], int(tokens.lengths.max(initial=0)))


class CorpusCheck:
    """Rows of a corpus; ``counted`` is what the manifest's totals have to say."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._sequences: set[bytes] = set()
        names = ("sequences", "tokens", "documents", "parts", "max_tokens", "max_documents")
        self.counted = dict.fromkeys(names, 0)

    def __call__(self, manifest: Manifest, name: str, batches: list[pa.RecordBatch]) -> Problems:
        pieces: dict[str, list[tuple[int, int, int]]] = {}  # document -> (offset, size, whole length) of its parts
        for number, record_batch in enumerate(batches):
            batch = SequenceBatch.from_arrow(record_batch)
            place = f"{name} batch {number}"
            yield from self._rows(place, batch)
            for row in range(len(batch)):
                ids = batch.document_ids[row].as_py()
                starts = batch.document_starts[row]
                sizes = np.diff(np.append(starts, len(batch.tokens[row])))
                parts = zip(
                    ids,
                    batch.document_offsets[row].tolist(),
                    sizes.tolist(),
                    batch.document_lengths[row].tolist(),
                    strict=True,
                )
                for document, offset, size, length in parts:
                    pieces.setdefault(document, []).append((offset, size, length))
        self.counted["documents"] += len(pieces)
        yield from self._parts(name, pieces)

    def _rows(self, place: str, batch: SequenceBatch) -> Problems:
        lengths = batch.tokens.lengths
        parts = batch.document_starts.lengths
        yield from _token_range(place, batch.tokens, self._manifest)
        yield from _ascending(place, "document_starts", batch.document_starts, lengths)
        yield from _ascending(place, "sentence_starts", batch.sentence_starts, lengths)
        for column in ("document_offsets", "document_lengths"):
            if (getattr(batch, column).lengths != parts).any():
                yield f"{place}: {column} and document_starts have different lengths"
        room = self._manifest.config["room_per_sequence"] + self._manifest.config["room_per_document"] * parts
        for row in np.flatnonzero(lengths + room > self._manifest.config["sequence_length"]).tolist():
            yield f"{place} row {row}: {lengths[row]} tokens and {room[row]} added exceed the sequence length"
        for row in range(len(batch)):
            if len(np.setdiff1d(batch.document_starts[row], batch.sentence_starts[row])):
                yield f"{place} row {row}: a part begins where no sentence does"
            if batch.sequence_id(row) in self._sequences:
                yield f"{place} row {row}: sequence_id {batch.sequence_id(row).hex()} occurs twice"
            self._sequences.add(batch.sequence_id(row))
        self.counted["sequences"] += len(batch)
        self.counted["tokens"] += int(lengths.sum())
        self.counted["parts"] += int(parts.sum())
        self.counted["max_tokens"] = max(self.counted["max_tokens"], int(lengths.max(initial=0)))
        self.counted["max_documents"] = max(self.counted["max_documents"], int(parts.max(initial=0)))

    def _parts(self, name: str, pieces: dict[str, list[tuple[int, int, int]]]) -> Problems:
        for document, parts in pieces.items():
            end = 0
            for offset, size, _ in sorted(parts):
                if offset != end:
                    yield f"{name}: document {document!r} continues at token {offset}, its parts before end at {end}"
                end = offset + size
            length = parts[0][2]
            cut = self._manifest.config["drop_ragged_tail"] and end < length
            if end != length and not cut:
                yield f"{name}: parts of document {document!r} hold {end} tokens, the document has {length}"


def _token_range(place: str, tokens: Ragged, manifest: Manifest) -> Problems:
    values = tokens.compact().values
    if len(values) and not 0 <= int(values.min()) <= int(values.max()) < manifest.tokenizer["vocab_size"]:
        yield f"{place}: token ids {values.min()}..{values.max()} outside of the vocabulary"


def _ascending(place: str, column: str, starts: Ragged, lengths: np.ndarray) -> Problems:
    """Strictly ascending in every row, the first 0, all inside the row's tokens."""
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
