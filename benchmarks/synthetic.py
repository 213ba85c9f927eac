"""Documents and vectors in any number without text or encoder; the vectors have the structure that embeddings have.

They stand for one cluster of a larger corpus. Topics follow a power law; a document lies around its topic in a space of
64 directions of falling weight, with noise in all others; so lists of an inverted file have borders that neighbours
cross, as they do in real text. One document in fifty nearly repeats the one before. Everything is drawn by key, block
by block.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.keyed import make_key
from corpora.schemas.documents import DOCUMENT_TOTALS, add_document_totals, documents_schema
from corpora.schemas.vectors import vector_column, vectors_schema
from corpora.storage.manifest import Manifest, Receipt, fold
from corpora.storage.manifest_file import list_files, manifest_sha256, relative_path, write_manifest, write_origins
from corpora.storage.ragged import Ragged
from corpora.storage.shards import shard_name, write_shard
from corpora.text.word_ngrams import SKETCH_SIZE
from corpora.tokenizers.protocol import Tokenizer
from corpora.tokenizers.training import train_byte_level_bpe

DIMENSION = 768
_BLOCK = 16_384
_LATENT = 64
_DOCUMENTS_A_TOPIC = 300
_ROWS_PER_BATCH = 1024


def generator(purpose: str, **configuration: int) -> np.random.Generator:
    key = np.frombuffer(make_key(0, purpose, configuration), np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


class Topics:
    """The folder of ``count`` documents."""

    def __init__(self, count: int) -> None:
        rng = generator("topics", count=count)
        topics = max(8, count // _DOCUMENTS_A_TOPIC)
        self.weights = (1 / np.sqrt(1 + np.arange(_LATENT) / 4)).astype(np.float32)
        self.centres = rng.standard_normal((topics, _LATENT), np.float32) * self.weights
        shares = np.arange(1.0, topics + 1) ** -0.8
        self.ends = np.cumsum(shares / shares.sum())
        # directions: (64, 768), orthonormal
        self.directions = np.linalg.qr(rng.standard_normal((DIMENSION, _LATENT)))[0].T.astype(np.float32)

    def vectors(self, block: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """``(count, 768)`` float16 of length 1, and ``(count,)`` bool: which nearly repeat the one before."""
        rng = generator("vectors", block=block)
        topics = np.minimum(np.searchsorted(self.ends, rng.random(count)), len(self.centres) - 1)
        latent = self.centres[topics] + 0.8 * self.weights * rng.standard_normal((count, _LATENT), np.float32)
        vectors = latent @ self.directions
        noise = 0.3 * np.linalg.norm(latent, axis=1, keepdims=True) / DIMENSION**0.5
        vectors += noise * rng.standard_normal(vectors.shape, np.float32)
        repeats = rng.random(count) < 0.02
        repeats[0] = False
        rows = np.flatnonzero(repeats)
        vectors[rows] = vectors[rows - 1] + 0.2 * noise[rows] * rng.standard_normal((len(rows), DIMENSION), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors.astype(np.float16), repeats


def sketches(block: int, repeats: np.ndarray) -> Ragged:
    """128 ascending hashes a document; those of a document that repeats are the same as before."""
    steps = generator("sketches", block=block).integers(1, 1 << 25, (len(repeats), SKETCH_SIZE), np.uint32)
    rows = np.arange(len(repeats))
    hashes = np.cumsum(steps, axis=1, dtype=np.uint32)[rows - repeats]
    return Ragged.from_lengths(hashes.reshape(-1), np.full(len(repeats), SKETCH_SIZE))


def token_lengths(block: int, count: int) -> np.ndarray:
    """``(count,)`` int32, long-tailed as those of web documents: 250 in the middle, 350 on average."""
    return generator("lengths", block=block).lognormal(np.log(250), 0.8, count).clip(20, 4000).astype(np.int32)


def ids(block: int, count: int) -> pa.Array:
    return pa.array([f"synthetic:{block:05d}:{row}" for row in range(count)])


def blocks(count: int) -> list[tuple[int, int]]:
    """Number and size of each block."""
    return [(block, min(_BLOCK, count - block * _BLOCK)) for block in range(-(-count // _BLOCK))]


def make_documents(folder: str, count: int) -> None:
    """``farspan.documents`` of random tokens, a shard a block; nothing where they are finished."""
    if os.path.exists(os.path.join(folder, "manifest.json")):
        return
    tokenizer = _tokenizer()
    schema, receipts = documents_schema(tokenizer.vocab_size), []
    for block, size in blocks(count):
        lengths = token_lengths(block, size)
        tokens = generator("tokens", block=block).integers(4, 260, lengths.sum(), np.uint16)
        batch = pa.record_batch(
            [
                ids(block, size),
                pa.array(["synthetic"] * size),
                pa.nulls(size, pa.int64()),
                pa.array(np.zeros(size, bool)),
                Ragged.from_lengths(tokens, lengths).to_arrow(schema.field("tokens").type),
                Ragged.from_lengths(np.zeros(size, np.int32), np.ones(size)).to_arrow(pa.list_(pa.int32())),
            ],
            schema=schema,
        )
        path = os.path.join(folder, "shards", shard_name(block, len(blocks(count))))
        with write_shard(path, schema, _ROWS_PER_BATCH) as (writer, info):
            writer.write(batch)
        totals = dict.fromkeys(DOCUMENT_TOTALS, 0)
        add_document_totals(totals, batch)
        receipts.append(Receipt(str(block), tuple(info), totals, {"synthetic": {"read": size, "written": size}}))
    _finish(folder, "farspan.documents", {"builder": "synthetic"}, tokenizer, receipts, None)


def make_vectors(folder: str, documents: str, count: int) -> None:
    """``farspan.vectors`` of these documents, a shard a block; nothing where they are finished."""
    if os.path.exists(os.path.join(folder, "manifest.json")):
        return
    topics, schema, receipts = Topics(count), vectors_schema(DIMENSION), []
    for block, size in blocks(count):
        vectors, repeats = topics.vectors(block, size)
        lengths = token_lengths(block, size)
        columns = [
            ids(block, size),
            pa.array(np.arange(size) + block * _BLOCK),
            pa.array(lengths),
            sketches(block, repeats).to_arrow(pa.list_(pa.uint32())),
            vector_column(vectors),
        ]
        path = os.path.join(folder, "shards", shard_name(block, len(blocks(count))))
        with write_shard(path, schema, _ROWS_PER_BATCH) as (writer, info):
            writer.write(pa.record_batch(columns, schema=schema))
        receipts.append(Receipt(str(block), tuple(info), {"documents": size, "tokens": int(lengths.sum())}))
    parent = {"manifest_sha256": manifest_sha256(documents)}
    write_origins(folder, {"parent": relative_path(folder, documents)})
    config = {"builder": "synthetic", "dimension": DIMENSION, "split": "train"}
    _finish(folder, "farspan.vectors", config, _tokenizer(), receipts, parent)


def _tokenizer() -> Tokenizer:
    return train_byte_level_bpe(["to be read by nobody"] * 20, 300)


def _finish(
    folder: str,
    format: str,
    config: dict[str, object],
    tokenizer: Tokenizer,
    receipts: list[Receipt],
    parent: dict[str, str] | None,
) -> None:
    entry = save_tokenizer(folder, tokenizer)
    head = Manifest(
        format,
        config,
        0,
        _ROWS_PER_BATCH,
        entry,
        parent=parent,
        **fold(receipts),
        files=list_files(folder),
    )
    write_manifest(folder, head)


def save_tokenizer(folder: str, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """Write a tokenizer, by default one of 300 ids, into an artefact's folder; return its entry in the manifest."""
    tokenizer = tokenizer or _tokenizer()
    tokenizer.save(os.path.join(folder, "tokenizer"))
    return {
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "owned_tokens": tokenizer.owned_tokens,
    }
