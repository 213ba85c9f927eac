"""Relatedness of the documents in a sequence, by their words and by their vectors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from corpora.printing import format_count
from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import SequenceBatch
from corpora.schemas.vectors import vector_rows
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from corpora.text.word_ngrams import ngram_hashes, redundancy
from corpora.tokenizers.load import load_tokenizer_of
from corpora.tokenizers.protocol import Tokenizer


def sample_rows(count: int, sample: int, seed: int = 0) -> np.ndarray:
    """Draw ``(min(count, sample),)`` row numbers, ascending."""
    if count <= sample:
        return np.arange(count)
    keys = id_keys(make_key(seed, "sample"), [str(row) for row in range(count)])[:, 0]
    return np.sort(np.argsort(keys, kind="stable")[:sample])


def redundancy_of(corpus: Corpus, rows: np.ndarray) -> np.ndarray:
    """Share of each row's word 5-grams that an earlier part of it has too: ``(rows,)``, 0 where there are none.

    A span that is hidden in such words can be copied from elsewhere in the sequence (BART-LS, section 5, on why linked
    text trained no better).
    """
    batch = corpus.take(rows)
    tokenizer = load_tokenizer_of(corpus.folder)
    repeated, total = redundancy(ngram_hashes(_part_texts(batch, tokenizer)), batch.document_starts.compact().offsets)
    return repeated / np.maximum(total, 1)


def _part_texts(batch: SequenceBatch, tokenizer: Tokenizer) -> list[str]:
    """The text of every part, row after row."""
    texts = []
    for row in range(len(batch)):
        tokens, starts = batch.tokens[row], batch.document_starts[row]
        texts += [tokenizer.decode(piece) for piece in np.split(tokens, starts[1:])]
    return texts


def similarity_of(corpus: Corpus, rows: np.ndarray, vectors: str) -> np.ndarray:
    """Mean cosine between the documents of each row, over all pairs: ``(rows,)``, nan for a row of one document."""
    import pyarrow.compute as pc  # slow to import, and only similarities need it

    batch = corpus.take(rows)
    ids = batch.document_ids.flatten().unique()
    units = _unit_vectors(ShardedRows(vectors, "farspan.vectors", verify=True), ids)
    numbers = Ragged(
        pc.index_in(batch.document_ids.flatten(), ids).to_numpy(), batch.document_starts.compact().offsets
    )  # document of each part, as an index into `ids`
    means = np.full(len(batch), np.nan)
    for row in range(len(batch)):
        row_units = units[np.unique(numbers[row])]  # (documents, d)
        count = len(row_units)
        if count > 1:
            total = float(np.square(row_units.sum(axis=0)).sum())  # all cosines, also of each document with itself
            means[row] = (total - count) / (count * (count - 1))
    return means


def _unit_vectors(rows: ShardedRows, ids: pa.Array) -> np.ndarray:
    """Unit vectors of the documents ``ids``: ``(ids, d)`` float32."""
    import pyarrow.compute as pc

    vectors = np.full((len(ids), rows.manifest.config["dimension"]), np.nan, np.float32)
    for batch in rows.batches():
        places = pc.index_in(batch.column("document_id"), ids)
        known = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
        vectors[places.drop_null().to_numpy()] = vector_rows(batch.column("vector"))[known]
    missing = np.flatnonzero(np.isnan(vectors[:, 0]))
    if len(missing):
        first = ids[int(missing[0])].as_py()
        raise FarspanError(
            f"{rows.folder}: no vector of document {first!r} and {format_count(len(missing) - 1, 'other')}; "
            "give --vectors the artefact made from the same documents and split"
        )
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
