"""The sources of pairs: their lengths, and the shares of predictions that are copied from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corpora.schemas.documents import DocumentSet
from corpora.storage.ragged import Ragged
from corpora.tokenizers.load import load_tokenizer_of
from corpora.tokenizers.protocol import Tokenizer
from objectives.metrics.copies import COPIED_NGRAM, copied_shares
from pipelines.evaluation.systems import Questions, System


def source_lengths(questions: Questions) -> np.ndarray:
    """Number of tokens of each pair's documents together, ``(n,)`` int64."""
    batches = questions.pairs.documents.batches()
    parts = [Ragged.from_arrow(batch.column("tokens")).lengths for batch in batches]
    lengths = np.concatenate([np.empty(0, np.int64), *parts])
    return np.array([lengths[list(rows)].sum() for rows in questions.document_rows], np.int64)


def compute_copied(questions: Questions, systems: Sequence[System], n: int = COPIED_NGRAM) -> list[np.ndarray]:
    """Compute ``copied_shares`` of each system's predictions, ``(n,)`` each; each source is decoded once."""
    documents, tokenizer = questions.pairs.documents, load_tokenizer_of(questions.pairs.documents.folder)
    shares = [np.full(len(questions.ids), np.nan) for _ in systems]
    pairs_about: dict[tuple[int, ...], list[int]] = {}
    for number, rows in enumerate(questions.document_rows):
        pairs_about.setdefault(rows, []).append(number)
    for rows, numbers in pairs_about.items():
        texts = [system.texts[number] for system in systems for number in numbers]
        of_texts = copied_shares(texts, _text(documents, tokenizer, rows), n)
        for of_system, part in zip(shares, np.split(of_texts, len(systems)), strict=True):
            of_system[numbers] = part
    return shares


def _text(documents: DocumentSet, tokenizer: Tokenizer, rows: Sequence[int]) -> str:
    tokens = Ragged.from_arrow(documents.take(rows).combine_chunks().column("tokens").chunk(0)).compact()
    return "\n".join(tokenizer.decode(tokens[row]) for row in range(len(tokens)))


def length_bins(lengths: np.ndarray, bins: int) -> list[np.ndarray]:
    """Divide rows by their ``(n,)`` source lengths into at most ``bins`` groups of nearly equal size, none empty.

    They are ordered from short to long; equal lengths stay together.
    """
    inner = np.quantile(lengths, np.arange(1, bins) / bins, method="inverted_cdf")
    groups = np.searchsorted(np.unique(inner), lengths, side="left")
    return [rows for group in range(bins) if len(rows := np.flatnonzero(groups == group))]
