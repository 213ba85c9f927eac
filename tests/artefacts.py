"""Small finished artefacts, made without any job, for tests of what reads them; and how tests read any."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing
from corpora.schemas.corpus import DocumentUse
from corpora.schemas.documents import DocumentSet, documents_schema
from corpora.schemas.pairs import PAIR_TOTALS, PairSet, add_pair_totals, pairs_schema
from corpora.schemas.predictions import PREDICTION_TOTALS, add_prediction_totals, predictions_schema
from corpora.schemas.sequences import corpus_schema
from corpora.storage.manifest import Manifest, Receipt, fold
from corpora.storage.manifest_file import (
    list_files,
    manifest_sha256,
    read_manifest,
    relative_path,
    write_manifest,
    write_origins,
)
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from corpora.storage.shards import shard_name, write_shard
from corpora.storage.strict_json import seal, unseal
from corpora.tokenizers.training import train_byte_level_bpe


@contextmanager
def edit_sealed(path: str | Path) -> Iterator[dict[str, Any]]:
    """Change the object in a JSON file that has a checksum, which is written anew."""
    values = unseal(Path(path).read_bytes())
    yield values
    Path(path).write_bytes(seal(values))


@lru_cache(maxsize=1)
def small_tokenizer():
    """Byte-level BPE with 400 ids."""
    words = "the quick brown fox jumps over lazy dogs while seven wizards observe strange lights".split()
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, 30)) + ". " for _ in range(50)]
    return train_byte_level_bpe(texts, 400)


def tokenizer_entry() -> dict:
    tokenizer = small_tokenizer()
    return {
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "owned_tokens": tokenizer.owned_tokens,
    }


def digests(folder: object) -> list[str]:
    """sha256 of each shard of an artefact."""
    return [shard.sha256 for shard in read_manifest(str(folder)).shards]


def all_rows(folder: object, format: str = "farspan.documents") -> list[dict]:
    """All rows of an artefact."""
    return [row for batch in ShardedRows(str(folder), format).batches() for row in batch.to_pylist()]


def write_part(
    folder: str,
    number: int,
    count: int,
    batch: pa.RecordBatch,
    totals: Mapping[str, int],
    counts: Mapping[str, Mapping[str, int]] | None = None,
    rows_per_batch: int = 16,
) -> Receipt:
    """Write a batch as shard ``number`` of ``count``."""
    path = os.path.join(folder, "shards", shard_name(number, count))
    with write_shard(path, batch.schema, rows_per_batch) as (writer, info):
        writer.write(batch)
    return Receipt(str(number), tuple(info), totals, counts or {})


def finish_artefact(
    folder: str,
    format: str,
    config: Mapping[str, Any],
    receipts: Sequence[Receipt],
    parent: str | None = None,
    seed: int = 0,
    rows_per_batch: int = 16,
    tokenizer: Mapping[str, Any] | None = None,
) -> str:
    """Write tokenizer, origin and manifest beside the shards; ``tokenizer`` is its entry in the manifest."""
    small_tokenizer().save(os.path.join(folder, "tokenizer"))
    entry = None
    if parent is not None:
        write_origins(folder, {"parent": relative_path(folder, parent)})
        entry = {"manifest_sha256": manifest_sha256(parent)}
    written = {**fold(receipts), "files": list_files(folder)}
    tokenizer = tokenizer or tokenizer_entry()
    write_manifest(folder, Manifest(format, config, seed, rows_per_batch, tokenizer, parent=entry, **written))
    return folder


def make_documents(
    folder: str,
    shards: int = 3,
    documents: int = 40,
    seed: int = 0,
    held_out: int = 5,
    sources: Sequence[str] = ("made",),
    clusters: int = 0,
    max_tokens: int = 119,
    titles: Sequence[str | None] = (),
) -> str:
    """A documents artefact of random tokens.

    Args:
        documents: in a shard; their sources take turns.
        held_out: every so-many-th document is held out.
        clusters: row r of a shard is in cluster r modulo this, or in none where r is a multiple of 7.
        max_tokens: of a document.
        titles: row r of a shard has title r modulo their number; empty for documents read without titles.
    """
    rng = np.random.default_rng(seed)
    tokenizer = small_tokenizer()
    schema = documents_schema(tokenizer.vocab_size, bool(titles))
    receipts = []
    for shard in range(shards):
        lengths = rng.integers(1, max_tokens + 1, documents)
        tokens = Ragged.from_lengths(rng.integers(4, tokenizer.vocab_size, lengths.sum()).astype(np.uint16), lengths)
        sentences = Ragged.from_rows(
            [np.unique(np.append(0, rng.integers(0, length, 4))) for length in lengths], np.int32
        )
        rows = np.arange(documents)
        held = rows % held_out == 0
        source = np.array(sources)[rows % len(sources)]
        cluster = rows % clusters if clusters else rows
        clustered = (rows % 7 > 0) & (clusters > 0)
        batch = pa.record_batch(
            [
                pa.array([f"{source[row]}:{shard}:{row}" for row in range(documents)]),
                pa.array(source),
                pa.array(cluster, pa.int64(), mask=~clustered),
                pa.array(held),
                tokens.to_arrow(schema.field("tokens").type),
                sentences.to_arrow(pa.list_(pa.int32())),
                *([pa.array([titles[row % len(titles)] for row in range(documents)])] if titles else []),
            ],
            schema=schema,
        )
        totals = {
            "documents": documents,
            "clustered_documents": int(clustered.sum()),
            "tokens": int(lengths.sum()),
            "sentences": len(sentences.values),
            "held_out_documents": int(held.sum()),
            "held_out_clustered_documents": int((clustered & held).sum()),
            "held_out_tokens": int(lengths[held].sum()),
            "max_tokens": int(lengths.max()),
        }
        counts = {
            name: {
                "read": int((source == name).sum()),
                "written": int((source == name).sum()),
                "tokens": int(lengths[source == name].sum()),
                "held_out_tokens": int(lengths[held & (source == name)].sum()),
            }
            for name in sources
        }
        receipts.append(write_part(folder, shard, shards, batch, totals, counts))
    config = {"builder": "documents", **({"read": {sources[0]: {"title_field": "title"}}} if titles else {})}
    return finish_artefact(folder, "farspan.documents", config, receipts)


def make_corpus(
    folder: str,
    shards: int = 2,
    documents: int = 40,
    sequence_length: int = 128,
    seed: int = 0,
    room_per_document: int = 1,
    words: int | None = None,
) -> str:
    """A corpus of random tokens, of which there are ``words`` different ones, or as many as the tokenizer has."""
    packing = Packing(sequence_length=sequence_length, room_per_document=room_per_document)
    rng = np.random.default_rng(seed)
    tokenizer = small_tokenizer()
    schema = corpus_schema(tokenizer.vocab_size)
    stop = tokenizer.vocab_size if words is None else 4 + words
    receipts = []
    for shard in range(shards):
        lengths = rng.integers(1, 200, documents)
        tokens = Ragged.from_lengths(rng.integers(4, stop, lengths.sum()).astype(np.uint16), lengths)
        starts = Ragged.from_rows([np.arange(0, length, 17) for length in lengths], np.int32)
        ids = pa.array([f"made:{shard}:{row}" for row in range(documents)])
        made = concatenate(ids, tokens, starts, packing)
        rows = made.sequences
        totals = {
            "sequences": len(rows),
            "tokens": len(rows.tokens.values),
            "documents": len(np.unique(made.documents)),
            "parts": len(rows.document_starts.values),
            "padding": packing.padding(rows),
            "max_tokens": int(rows.tokens.lengths.max()),
            "max_documents": int(rows.document_starts.lengths.max()),
        }
        counts = {
            "made": {"read": documents, "written": documents, "uses": documents, "tokens": len(rows.tokens.values)}
        }
        receipts.append(write_part(folder, shard, shards, rows.to_arrow(schema), totals, counts, rows_per_batch=8))
    use = DocumentUse(left_out="too short, too long, or in a dropped tail")
    config = {"builder": "random", "document_use": asdict(use), **vars(packing)}
    return finish_artefact(folder, "farspan.corpus", config, receipts, seed=seed, rows_per_batch=8)


def make_pairs(
    folder: str,
    documents: str,
    pairs: int = 24,
    seed: int = 0,
    documents_per_pair: int = 1,
    splits: Sequence[str] = ("train", "train", "validation"),
    max_targets: int = 2,
    options: int = 0,
    attributes: Sequence[Mapping[str, Any]] = ({},),
    shards: int = 1,
) -> str:
    """Pairs of random tokens about the documents of ``make_documents``; pair i is in split ``i % len(splits)``.

    Args:
        documents_per_pair: consecutive documents of a pair.
        max_targets: pair i has ``i % max_targets + 1`` targets; its references are their decoded texts. 0 for none.
        options: of each pair; the first is its first target.
        attributes: pair i has ``attributes[i % len(attributes)]``.
        shards: of about equal numbers of pairs.
    """
    rng = np.random.default_rng(seed)
    tokenizer, parent = small_tokenizer(), DocumentSet(documents)
    schema = pairs_schema(tokenizer.vocab_size)

    def words(count: int) -> list[int]:
        return rng.integers(4, tokenizer.vocab_size, count).tolist()

    rows = []
    for pair in range(pairs):
        about = [(pair * documents_per_pair + part) % len(parent) for part in range(documents_per_pair)]
        targets = [words(int(rng.integers(1, 9))) for _ in range(pair % max_targets + 1 if max_targets else 0)]
        rows.append(
            {
                "pair_id": f"pair-{pair}",
                "document_ids": parent.take(about).column("document_id").to_pylist(),
                "document_rows": about,
                "query": words(int(rng.integers(0, 6))),
                "options": [*targets[:1], *(words(3) for _ in range(options - 1))] if options else None,
                "targets": targets,
                "references": [tokenizer.decode(target) for target in targets],
                "split": splits[pair % len(splits)],
                "attributes": json.dumps(attributes[pair % len(attributes)]),
            }
        )
    batch = pa.RecordBatch.from_pylist(rows, schema)
    totals = dict.fromkeys(PAIR_TOTALS, 0)
    add_pair_totals(totals, batch)
    edges = [pairs * shard // shards for shard in range(shards + 1)]
    receipts = [
        write_part(folder, shard, shards, batch.slice(begin, end - begin), {} if shard else totals, rows_per_batch=8)
        for shard, (begin, end) in enumerate(pairwise(edges))
    ]
    return finish_artefact(folder, "farspan.pairs", {"builder": "pairs"}, receipts, documents, seed, rows_per_batch=8)


def make_predictions(
    folder: str, pairs: str, split: str = "validation", texts: Sequence[str] | None = None, run: str = ""
) -> str:
    """Predictions of a run, or of a model's folder, for the pairs of ``split``: ``texts``, or the last references."""
    tokenizer, parent = small_tokenizer(), PairSet(pairs)
    table = parent.table(parent.rows_of(split))
    answers = [references[-1] for references in table.column("references").to_pylist()] if texts is None else texts
    schema = predictions_schema(tokenizer.vocab_size)
    columns = {
        "pair_id": table.column("pair_id").to_pylist(),
        "text": list(answers),
        "tokens": [row.tolist() for row in tokenizer.encode(list(answers))],
        "score": [-0.5] * len(answers),
    }
    batch = pa.RecordBatch.from_pydict(columns, schema)
    totals = dict.fromkeys(PREDICTION_TOTALS, 0)
    add_prediction_totals(totals, batch)
    model = {"run": run} if run else {"folder": "model"}
    model |= {"checkpoint": None, "sha256": "0" * 64, "vocab_size": tokenizer.vocab_size}
    task = {"name": "text_to_text", "options": {}}
    config = {"split": split, "generation": {"beams": 1}, "task": task, "model": model}
    receipts = [write_part(folder, 0, 1, batch, totals, rows_per_batch=8)]
    return finish_artefact(folder, "farspan.predictions", config, receipts, pairs, rows_per_batch=8)


def write_mixture_file(folder, documents, text="", sequence_length=256, **sources):
    """A mixture file of the given documents; ``sources`` are the lines of their tables."""
    tables = "".join(f"[sources.{name}]\n{lines}\n" for name, lines in sources.items())
    path = folder / "mixture.toml"
    documents = f'documents = "{documents}"\n' if documents else ""
    path.write_text(f"{documents}sequence_length = {sequence_length}\n{text}\n{tables}")
    return str(path)
