"""Treatments of a chosen sentence: hidden behind a mask token, replaced, left unchanged, or removed without a marker.

Source: the published code of PEGASUS (pegasus/ops/pretrain_parsing_ops.cc). The target always has the sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corpora.compiled import compiled
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE
from objectives.sentences.selection import Sentences, uniform

TREATMENTS = np.array([IN_SOURCE | IN_TARGET, REPLACED | IN_TARGET, VISIBLE | IN_TARGET, IN_TARGET], np.uint8)
"""Flags of mask, random, intact and remove."""
RANDOM = 1


def choose_treatments(bits: np.ndarray, chances: Sequence[float]) -> np.ndarray:
    """Draw a treatment for each sentence: indices into ``TREATMENTS``, ``(k,)`` int64.

    ``bits``: ``(k, 4)`` uint64, the draws of each sentence; the third column is used. ``chances``: four probabilities
    in the order of ``TREATMENTS``, which add up to 1.
    """
    bounds = np.cumsum(chances)
    # The float sum may be slightly below 1; a number above it gets the last treatment with a probability above 0.
    bounds[np.flatnonzero(chances)[-1] :] = 1.0
    return np.searchsorted(bounds, uniform(bits[:, 2]), side="right")


def stand_ins(batch: SequenceBatch, sentences: Sentences, numbers: np.ndarray, bits: np.ndarray) -> Ragged:
    """Draw replacements for sentences: the ids of a sentence of the same text, repeated or cut to as many tokens.

    As in the published code, it is a random sentence of the text, possibly the replaced one. (There, it keeps its own
    length and may already be masked.)

    ``numbers``: ``(k,)`` int64, the replaced sentences, ascending indices into ``sentences``. ``bits``: ``(k, 4)``
    uint64, draws of the replaced sentences; the fourth column is used. Returns one int32 row for each row of ``batch``,
    the ids of its sentences concatenated.
    """
    text = sentences.text_of_sentence[numbers]
    rows = sentences.row_of_text[text]
    # A remainder of 64 random bits is uniform, to one part in 2**40 at a million sentences.
    others = sentences.texts[text] + (bits[:, 3] % sentences.sizes[text].astype(np.uint64)).astype(np.int64)
    lengths = sentences.lengths[numbers]
    ids = np.empty(lengths.sum(), np.int32)
    tokens = batch.tokens.compact()
    _repeat(tokens.values, tokens.offsets[rows] + sentences.starts[others], sentences.lengths[others], lengths, ids)
    return Ragged.from_lengths(ids, np.bincount(rows, lengths, len(batch)).astype(np.int64))


@compiled
def _repeat(tokens: np.ndarray, starts: np.ndarray, sizes: np.ndarray, lengths: np.ndarray, ids: np.ndarray) -> None:
    at = 0
    for i in range(len(starts)):
        for j in range(lengths[i]):
            ids[at] = tokens[starts[i] + j % sizes[i]]
            at += 1
