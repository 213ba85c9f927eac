"""Small finished ``farspan.vectors``, made without an encoder: for tests of what reads them."""

from typing import Any

import numpy as np
import pyarrow as pa

from corpora.schemas.vectors import vector_column, vector_rows, vectors_schema
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.manifest_file import read_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from corpora.text.word_ngrams import SKETCH_SIZE
from tests.artefacts import finish_artefact, write_part


def topic_vectors(count: int, dimension: int = 16, topics: int = 8, spread: float = 0.4, seed: int = 0) -> np.ndarray:
    """``(count, dimension)`` float16 of length 1: documents around ``topics`` directions, some topics larger."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, topics + 1)
    centres = rng.standard_normal((topics, dimension))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    vectors = centres[rng.choice(topics, count, p=shares / shares.sum())]
    vectors = vectors + spread * rng.standard_normal((count, dimension)) / np.sqrt(dimension)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def make_vectors(
    folder: str,
    documents: str | int,
    dimension: int = 16,
    shards: int = 3,
    vectors: np.ndarray | None = None,
    seed: int = 0,
) -> str:
    """A vectors artefact.

    Args:
        documents: folder of a documents artefact, whose documents that are not held out get vectors, a shard of them in
            a shard of vectors; or a number of documents that lie nowhere, in ``shards`` shards.
        vectors: ``(n, dimension)``; None for ``topic_vectors``.
    """
    rng = np.random.default_rng(seed)
    # a row a document: the shard it belongs to, its id, its row among all documents, its tokens
    if isinstance(documents, int):
        shard_of = np.arange(documents) * shards // max(documents, 1)
        ids = [f"made:{shard}:{row}" for row, shard in enumerate(shard_of)]
        rows, tokens, parent = np.arange(documents), rng.integers(1, 120, documents), None
    else:
        shard_of, ids, rows, tokens = _documents(documents)
        shards = len(read_manifest(documents).shards)
        parent = documents
    if vectors is None:
        vectors = topic_vectors(len(ids), dimension, seed=seed)
    sketches = Ragged.from_rows([np.unique(rng.integers(0, 400, SKETCH_SIZE // 2)) for _ in ids], np.uint32)
    schema, receipts = vectors_schema(dimension), []
    for shard in range(shards):
        chosen = np.flatnonzero(shard_of == shard)
        batch = pa.record_batch(
            [
                pa.array([ids[row] for row in chosen], pa.string()),
                pa.array(rows[chosen], pa.int64()),
                pa.array(tokens[chosen], pa.int32()),
                sketches.take(chosen).to_arrow(pa.list_(pa.uint32())),
                vector_column(vectors[chosen]),
            ],
            schema=schema,
        )
        totals = {"documents": len(chosen), "tokens": int(tokens[chosen].sum())}
        receipts.append(write_part(folder, shard, shards, batch, totals))
    config = {"builder": "made", "dimension": dimension, "split": "train"}
    return finish_artefact(folder, "farspan.vectors", config, receipts, parent, seed)


def table(folder: str, format: str) -> dict[str, Any]:
    """All rows of an artefact by column: lists, and ``vector`` as ``(n, dimension)``."""
    everything = pa.concat_batches(ShardedRows(str(folder), format).batches())
    found = {name: everything.column(name).to_pylist() for name in everything.schema.names if name != "vector"}
    return found | ({"vector": vector_rows(everything.column("vector"))} if "vector" in everything.schema.names else {})


def copy(source: str, target: str) -> None:
    """Copy a folder between any two file systems."""
    for path in files.walk(source):
        write_bytes(target + path.removeprefix(source), read_bytes(path))


def _documents(folder: str) -> tuple[np.ndarray, list[str], np.ndarray, np.ndarray]:
    """Shard, id, row and tokens of each document that is not held out."""
    rows = ShardedRows(folder, "farspan.documents")
    shard_of, ids, numbers, tokens = [], [], [], []
    number = 0
    for shard in range(len(rows.manifest.shards)):
        for index in range(rows.shard(shard)[1].num_record_batches):
            batch = rows.batch(shard, index)
            lengths = Ragged.from_arrow(batch.column("tokens")).lengths.tolist()
            columns = (batch.column(name).to_pylist() for name in ("document_id", "held_out"))
            for name, held_out, length in zip(*columns, lengths, strict=True):
                if not held_out:
                    shard_of.append(shard)
                    ids.append(name)
                    numbers.append(number)
                    tokens.append(length)
                number += 1
    return np.array(shard_of, np.int64), ids, np.array(numbers, np.int64), np.array(tokens, np.int64)
