"""Measurement of how much of a prediction is copied from its source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corpora.errors import FarspanError
from corpora.text.word_ngrams import ngram_hashes

COPIED_NGRAM = 4


def copied_shares(predictions: Sequence[str], source: str, n: int = COPIED_NGRAM) -> np.ndarray:
    """Compute the share of the word n-grams of each prediction that occur in the source.

    Words and hashes are those of ``corpora.text.word_ngrams``. A prediction of fewer than n words has one n-gram, all
    of its words.

    Returns ``(k,)`` float64 from 0 to 1, NaN for a prediction without words.
    """
    if n < 1:
        raise FarspanError(f"copies of n-grams with n = {n}: n must be at least 1")
    words = np.minimum(ngram_hashes(predictions, 1).lengths, n)
    shares = np.full(len(predictions), np.nan)
    for size in np.unique(words[words > 0]).tolist():
        known = np.unique(ngram_hashes([source], size).values)
        rows = np.flatnonzero(words == size).tolist()
        grams = ngram_hashes([predictions[row] for row in rows], size)
        copied = np.add.reduceat(np.isin(grams.values, known), grams.offsets[:-1])
        shares[rows] = copied / grams.lengths
    return shares
