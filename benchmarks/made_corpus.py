"""A corpus of random tokens in many documents, and a mask set of it, made without text, tokenizer or workers."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa

from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing
from corpora.schemas.sequences import SequenceBatch, corpus_schema
from corpora.storage.manifest import Manifest, Receipt, fold
from corpora.storage.manifest_file import manifest_sha256, read_manifest, relative_path, write_manifest, write_origins
from corpora.storage.ragged import Ragged
from corpora.storage.shards import read_shard, shard_name, write_shard
from objectives.api.masks import MASK_SCHEMA
from objectives.api.protocol import CorpusFacts, Objective, mask_key

VOCAB = 32_000
OWNED = {"<pad>": 0, "<eos>": 1, "<bos>": 2}
_FIRST_TOKEN = 3
_DOCUMENT, _SENTENCE = 400, 20  # tokens, about
_ROWS_PER_BATCH = 64


def make_corpus(folder: str, rows: int, length: int, shards: int = 4) -> None:
    """A corpus of at least ``rows`` sequences that fill ``length`` encoder positions with documents of some 400 tokens.

    The last sequence of a shard is as long as what is left for it.
    """
    schema, receipts = corpus_schema(VOCAB), []
    for shard in range(shards):
        rng = np.random.default_rng([0, shard])
        documents = -(-rows // shards) * (length // _DOCUMENT + 1)
        lengths = rng.lognormal(np.log(0.8 * _DOCUMENT), 0.67, documents).astype(np.int64) + 1  # mean _DOCUMENT
        tokens = Ragged.from_lengths(rng.integers(_FIRST_TOKEN, VOCAB, lengths.sum(), np.uint16), lengths)
        sentences = Ragged.from_rows([np.arange(0, size, _SENTENCE) for size in lengths], np.int32)
        ids = pa.array([f"made:{shard}:{number}" for number in range(documents)])
        sequences = concatenate(ids, tokens, sentences, Packing(sequence_length=length)).sequences
        path = os.path.join(folder, "shards", shard_name(shard, shards))
        with write_shard(path, schema, _ROWS_PER_BATCH) as (writer, info):
            writer.write(sequences.to_arrow(schema))
        totals = {
            "sequences": len(sequences),
            "tokens": len(sequences.tokens.values),
            "documents": int(sequences.document_starts.lengths.sum()),
            "parts": int(sequences.document_starts.lengths.sum()),
            "padding": 0,
            "max_tokens": int(sequences.tokens.lengths.max()),
            "max_documents": int(sequences.document_starts.lengths.max()),
        }
        receipts.append(Receipt(str(shard), tuple(info), totals))
    tokenizer = {"fingerprint": "none", "vocab_size": VOCAB, "owned_tokens": OWNED}
    packing = {"builder": "random", **vars(Packing(sequence_length=length))}
    manifest = Manifest("farspan.corpus", packing, 0, _ROWS_PER_BATCH, tokenizer, **fold(receipts))
    write_manifest(folder, manifest)


def make_masks(folder: str, corpus: str, objective: Objective, seed: int = 0) -> None:
    """The masks that ``farspan mask`` would make."""
    parent = read_manifest(corpus, "farspan.corpus")
    special, key, receipts = objective.validate(CorpusFacts.of(parent)), mask_key(seed, objective), []
    for shard in parent.shards:
        source = read_shard(os.path.join(corpus, "shards", shard.name))
        masks = [objective.mask(SequenceBatch.from_arrow(batch), key) for batch in source]
        path = os.path.join(folder, "shards", shard.name)
        with write_shard(path, MASK_SCHEMA, parent.rows_per_batch) as (writer, info):
            for batch in masks:
                writer.write(batch.to_arrow())
        totals = {
            "sequences": shard.rows,
            "max_source_length": int(max(batch.source_lengths.max() for batch in masks)),
            "max_target_length": int(max(batch.target_lengths.max() for batch in masks)),
        }
        receipts.append(Receipt(shard.name, tuple(info), totals))
    manifest = Manifest(
        "farspan.masks",
        {
            "objective": objective.name,
            "options": dict(objective.options),
            "global_attention": objective.global_attention,
            "tools": {},
            "draws": 1,
        },
        seed,
        parent.rows_per_batch,
        parent.tokenizer,
        special_tokens=dict(special.ids),
        parent={"manifest_sha256": manifest_sha256(corpus)},
        **fold(receipts),
    )
    write_origins(folder, {"parent": relative_path(folder, corpus)})
    write_manifest(folder, manifest)
