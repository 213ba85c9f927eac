"""The sources of pairs: their lengths, and what predictions copy from them."""

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
    """``(n,)`` int64, tokens of the documents of each pair."""
    batches = questions.pairs.documents.batches()
    parts = [Ragged.from_arrow(batch.column("tokens")).lengths for batch in batches]
    lengths = np.concatenate([np.empty(0, np.int64), *parts])
    return np.array([lengths[list(rows)].sum() for rows in questions.document_rows], np.int64)


def copied(questions: Questions, systems: Sequence[System], n: int = COPIED_NGRAM) -> list[np.ndarray]:
    """``copied_shares`` of each system's predictions, ``(n,)`` each; each source is decoded once."""
    documents, tokenizer = questions.pairs.documents, load_tokenizer_of(questions.pairs.documents.folder)
    shares = [np.full(len(questions.ids), np.nan) for _ in systems]
    about: dict[tuple[int, ...], list[int]] = {}
    for number, rows in enumerate(questions.document_rows):
        about.setdefault(rows, []).append(number)
    for rows, numbers in about.items():
        texts = [system.texts[number] for system in systems for number in numbers]
        found = copied_shares(texts, _text(documents, tokenizer, rows), n)
        for own, part in zip(shares, np.split(found, len(systems)), strict=True):
            own[numbers] = part
    return shares


def _text(documents: DocumentSet, tokenizer: Tokenizer, rows: Sequence[int]) -> str:
    tokens = Ragged.from_arrow(documents.take(rows).combine_chunks().column("tokens").chunk(0)).compact()
    return "\n".join(tokenizer.decode(tokens[row]) for row in range(len(tokens)))


def length_bins(lengths: np.ndarray, bins: int) -> list[np.ndarray]:
    """Rows in groups of nearly equal size, from short to long sources; sources of one length stay together.

    Args:
        lengths: ``(n,)`` of sources.

    Returns:
        At most ``bins`` arrays of rows, none empty.
    """
    inner = np.quantile(lengths, np.arange(1, bins) / bins, method="inverted_cdf")
    groups = np.searchsorted(np.unique(inner), lengths, side="left")
    return [rows for group in range(bins) if len(rows := np.flatnonzero(groups == group))]
