"""``farspan embed``: compute a vector for every document, for retrieval-linked corpora.

A task is a block of consecutive rows of one documents shard and becomes one shard of vectors. The composition of the
model's batches, and so the bytes on one machine, do not depend on the number of workers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa

from corpora.compiled import compiled
from corpora.errors import FarspanError
from corpora.options import record_options
from corpora.printing import format_count
from corpora.schemas.vectors import vector_column, vectors_schema
from corpora.storage import files
from corpora.storage.arrow_views import booleans
from corpora.storage.manifest import Receipt
from corpora.storage.ragged import Ragged
from corpora.storage.shards import StoredShard, map_shard, write_shard
from corpora.text.utf8 import byte_offsets
from corpora.text.word_ngrams import ngram_hashes, sketch
from corpora.tokenizers.protocol import Tokenizer
from objectives.rouge.sentence_scores import sentence_scores
from objectives.rouge.words import split_words
from pipelines.documents.shard import plain
from pipelines.engine.artefacts import Parent, absolute, artefact_tokenizer, declare_derived_job, require_tokens
from pipelines.engine.job import Job, Report, Stage, Task, count_by_source, make_sharded_stage, shard_paths
from pipelines.retrieval.encoder import Encoder, device_count, load_encoder, resolve
from pipelines.retrieval.options import Embed
from trainer.scorer.encoder import find_encoder

ROWS_PER_BATCH = 1024
# maximum number of tokens decoded at once; a longer document is decoded alone
_CHUNK_TOKENS = 1 << 20
# cost of a token for the encoder, as bytes to read: the number of workers is chosen by bytes
_BYTES_A_TOKEN = 1 << 10


def plan(options: Embed) -> Job:
    """Check the options and declare the tasks; the encoder's files are hashed, its weights are not loaded yet."""
    output, documents = absolute(options.output), Parent.read(options.documents, "farspan.documents")
    tokens = require_tokens(documents.folder, documents.manifest, options.split)
    if options.min_document_tokens > (longest := documents.manifest.totals["max_tokens"]):
        raise FarspanError(
            f"--min-document-tokens {options.min_document_tokens}: the longest document of {documents.folder} has "
            f"{format_count(longest, 'token')}; give less"
        )
    artefact_tokenizer(documents.folder).decode_with_offsets([])
    encoder_files = find_encoder(options.encoder.name)
    encoder = resolve(options.encoder, encoder_files)
    encoder = replace(encoder, name=encoder_files.folder if os.path.isdir(encoder.name) else encoder.name)
    batches = -(-options.block // documents.manifest.rows_per_batch)  # record batches of documents per task
    config = {
        "builder": "embed",
        "fingerprint": encoder_files.fingerprint,
        "dimension": encoder_files.dimension,
        **record_options(
            options,
            encoder=replace(encoder, name=encoder_files.name),
            block=batches * documents.manifest.rows_per_batch,
        ),
    }
    resolved = replace(options, documents=documents.folder, encoder=encoder)
    job = declare_derived_job(
        output,
        documents,
        [_stage(documents, output, batches, partial(_embed_block, resolved, encoder_files.fingerprint))],
        format="farspan.vectors",
        config=config,
        seed=0,
        rows_per_batch=ROWS_PER_BATCH,
        work_bytes=_BYTES_A_TOKEN * tokens,
    )
    return replace(job, workers=device_count())


def count_vectors(options: Embed) -> int:
    """Count the documents that will get a vector; in a remote store all of the split, without reading shards."""
    documents = Parent.read(options.documents, "farspan.documents")
    if not files.is_local(documents.folder):
        totals = documents.manifest.totals
        of_held_out = totals["held_out_documents"]
        return of_held_out if options.split == "held-out" else totals["documents"] - of_held_out
    readers = (map_shard(shard.path)[1] for shard in documents.shards)
    batches = (reader.get_batch(number) for reader in readers for number in range(reader.num_record_batches))
    return sum(int(np.count_nonzero(_with_vector(options, batch))) for batch in batches)


def _of_split(options: Embed, batch: pa.RecordBatch) -> np.ndarray:
    return booleans(batch.column("held_out")) == (options.split == "held-out")


def _with_vector(options: Embed, batch: pa.RecordBatch) -> np.ndarray:
    """``(rows,)`` bool: documents of the split that are not too short."""
    return _of_split(options, batch) & (
        Ragged.from_arrow(batch.column("tokens")).lengths >= options.min_document_tokens
    )


def _stage(documents: Parent, output: str, batches: int, work: Callable[[Task, Report], Receipt]) -> Stage:
    """Declare a task for each block of ``batches`` record batches of a documents shard."""
    size = documents.manifest.rows_per_batch
    blocks = [
        (shard, start, first)
        for shard, start in zip(documents.shards, documents.first_rows[:-1], strict=True)
        for first in range(0, shard.rows, batches * size)
    ]
    return make_sharded_stage(
        "embed",
        work,
        "documents",
        [min(batches * size, shard.rows - first) for shard, _, first in blocks],
        documents=[shard for shard, _, _ in blocks],
        first_batch=[first // size for _, _, first in blocks],
        batches=[batches] * len(blocks),
        first_row=[start + first for _, start, first in blocks],
        shard=shard_paths(output, len(blocks)),
    )


def _embed_block(options: Embed, fingerprint: str, task: Task, report: Report) -> Receipt:
    """Embed one block of documents by the encoder whose files have a fingerprint."""
    encoder = load_encoder(options.encoder)
    if encoder.files.fingerprint != fingerprint:
        raise FarspanError(
            f"encoder {encoder.files.folder}: its files are not those that the job was started with; put them "
            "back, or give --output another folder"
        )
    source: StoredShard = task.payload["documents"]
    target = task.payload["shard"]
    schema = vectors_schema(encoder.files.dimension)
    counts: dict[str, Counter[str]] = {}
    blocks: list[pa.RecordBatch] = []  # all columns but the vector
    ids: list[Ragged] = []  # input of the encoder
    long_documents = 0
    first_row = task.payload["first_row"]
    record_batches = source.batches(task.payload["first_batch"])
    for batch in islice(record_batches, task.payload["batches"]):
        rows = _select(options, batch, counts)
        for chunk in _chunks(rows, Ragged.from_arrow(batch.column("tokens")).lengths[rows]):
            block, chunk_ids, longer = _prepare(options, batch, chunk, first_row, encoder)
            blocks.append(block)
            ids.append(chunk_ids)
            long_documents += int(longer.sum())
        first_row += len(batch)
    written = sum(count["written"] for count in counts.values())
    left_out = task.units - written
    with write_shard(target, schema, ROWS_PER_BATCH, options.compression) as (writer, info):
        if written:
            table = pa.Table.from_batches(blocks).combine_chunks().to_batches()[0]
            vectors = encoder.encode_ids(Ragged.concatenate(ids), lambda done: report(left_out + done))
            half = _half(vectors, table.column("document_id"), encoder)
            writer.write(pa.record_batch([*table.columns, vector_column(half)], schema=schema))
    totals = {
        "documents": written,
        "tokens": sum(count["tokens"] for count in counts.values()),
        "long_documents": long_documents,
        "encoder_tokens": sum(int(part.lengths.sum()) for part in ids),
    }
    return Receipt(task.name, tuple(info), totals, plain(counts))


def _select(options: Embed, batch: pa.RecordBatch, counts: dict[str, Counter[str]]) -> np.ndarray:
    """Return the rows of a batch that get a vector, and add the split's documents to ``counts`` by source."""
    lengths = Ragged.from_arrow(batch.column("tokens")).lengths
    of_split, kept = _of_split(options, batch), _with_vector(options, batch)
    sources = np.asarray(batch.column("source").to_pylist(), object)
    numbers = {"read": of_split, "written": kept, "filtered": of_split & ~kept, "tokens": lengths * kept}
    for source, count in count_by_source(sources, **numbers).items():
        if count["read"]:
            counts.setdefault(source, Counter()).update(count)
    return np.flatnonzero(kept)


def _prepare(
    options: Embed, batch: pa.RecordBatch, rows: np.ndarray, first_row: int, encoder: Encoder
) -> tuple[pa.RecordBatch, Ragged, np.ndarray]:
    """Prepare documents for the encoder: all columns but the vectors, ids, and ``(rows,)`` bool, the shortened."""
    tokens = Ragged.from_arrow(batch.column("tokens"))
    sentences = Ragged.from_arrow(batch.column("sentence_starts"))
    tokenizer = artefact_tokenizer(options.documents)
    decoded = [tokenizer.decode_with_offsets(tokens[row]) for row in rows]
    texts = [text for text, _ in decoded]
    # rows of characters at which sentences begin
    starts = [characters[sentences[row]] for row, (_, characters) in zip(rows, decoded, strict=True)]
    ids, longer = condense(
        texts, Ragged.from_rows(starts, np.int64), encoder.tokenizer, encoder.max_text_tokens, options.long_documents
    )
    columns = {
        "document_id": batch.column("document_id").take(pa.array(rows)),
        "document_row": pa.array(first_row + rows, pa.int64()),
        "document_tokens": pa.array(tokens.lengths[rows].astype(np.int32)),
        "shingles": sketch(ngram_hashes(texts)).to_arrow(pa.list_(pa.uint32())),
    }
    return pa.RecordBatch.from_pydict(columns), ids, longer


def _chunks(rows: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Cut ``(n,)`` rows of the given ``(n,)`` lengths where their tokens pass multiples of ``_CHUNK_TOKENS``."""
    cuts = np.flatnonzero(np.diff(np.cumsum(lengths) // _CHUNK_TOKENS)) + 1
    return np.split(rows, cuts) if len(rows) else []


def _half(vectors: np.ndarray, document_ids: pa.Array, encoder: Encoder) -> np.ndarray:
    """Convert ``(n, d)`` vectors to float16."""
    with np.errstate(over="ignore"):
        half = vectors.astype(np.float16)
    for bad, why in (
        (~np.isfinite(vectors), "is not finite; use --precision float32, or an encoder whose weights are sound"),
        (~np.isfinite(half), "is beyond float16, whose largest number is 65504; use --normalize"),
    ):
        rows, components = np.nonzero(bad)
        if len(rows):
            value = vectors[rows[0], components[0]]
            raise FarspanError(
                f"document {document_ids[int(rows[0])].as_py()!r}: encoder {encoder.files.name} gave a vector with "
                f"{value}, which {why}"
            )
    return half


def condense(
    texts: Sequence[str], sentence_starts: Ragged, tokenizer: Tokenizer, max_tokens: int, long_documents: str
) -> tuple[Ragged, np.ndarray]:
    """Encode n texts as n rows of int32, at most ``max_tokens`` >= 1 ids each, and mark longer ones: ``(n,)`` bool.

    ``first`` keeps the first ``max_tokens`` tokens of a longer text. ``principal`` keeps its principal sentences, in
    the order of the text: they are chosen by descending score, the earlier of equal ones first, as long as they fit. If
    not even one fits, the best is cut. ``sentence_starts`` has n rows, the characters at which sentences begin,
    ascending from 0; tokens are counted, and sentences cut out, in the encoder's ids of the whole text.
    """
    ids = tokenizer.encode(texts)
    longer = ids.lengths > max_tokens
    rows = [ids[row][:max_tokens] for row in range(len(ids))]
    chosen = np.flatnonzero(longer).tolist() if long_documents == "principal" else []
    if chosen:
        long_texts = [texts[row] for row in chosen]
        scores = sentence_scores(split_words(long_texts, sentence_starts.take(chosen)))
        whole, starts = tokenizer.encode_with_starts(long_texts)
        for i, row in enumerate(chosen):
            sentences = byte_offsets(long_texts[i], sentence_starts[row])
            # edges: (sentences + 1,) tokens; a token belongs to the sentence in which it begins
            edges = np.append(np.searchsorted(starts[i], sentences), len(whole[i]))
            kept = _choose(np.argsort(-scores[i], kind="stable"), np.diff(edges), max_tokens)
            rows[row] = whole[i][np.repeat(kept, np.diff(edges))][:max_tokens]
    return Ragged.from_rows(rows, np.int32), longer


@compiled
def _choose(order: np.ndarray, sizes: np.ndarray, max_tokens: int) -> np.ndarray:
    """``(sentences,)`` bool: sentences that fit into ``max_tokens``, taken in ``order``; else the first with tokens."""
    kept = np.zeros(len(sizes), np.bool_)
    left = max_tokens
    for sentence in order:
        if sizes[sentence] <= left:
            kept[sentence] = True
            left -= sizes[sentence]
    if left == max_tokens:
        for sentence in order:
            if sizes[sentence]:
                kept[sentence] = True
                break
    return kept
