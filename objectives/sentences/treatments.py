"""What becomes of a chosen sentence: hidden behind a mask token, replaced, left as it is, or removed without a trace.

Source: the published code of PEGASUS (pegasus/ops/pretrain_parsing_ops.cc); in all cases the target has the sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE
from objectives.sentences.selection import Sentences, uniform

TREATMENTS = np.array([IN_SOURCE | IN_TARGET, REPLACED | IN_TARGET, VISIBLE | IN_TARGET, IN_TARGET], np.uint8)
"""Flags of mask, random, intact and remove."""
RANDOM = 1


def choose_treatments(bits: np.ndarray, chances: Sequence[float]) -> np.ndarray:
    """Places in ``TREATMENTS``, ``(k,)`` int64.

    Args:
        bits: ``(k, 4)`` uint64, a sentence's draws, of which the third is used.
        chances: four, in the order of ``TREATMENTS``, that add up to 1.
    """
    bounds = np.cumsum(chances)
    # Sums of floats may end a little below 1; what lies above belongs to the last treatment that has any chance.
    bounds[np.flatnonzero(chances)[-1] :] = 1.0
    return np.searchsorted(bounds, uniform(bits[:, 2]), side="right")


def stand_ins(batch: SequenceBatch, sentences: Sentences, numbers: np.ndarray, bits: np.ndarray) -> Ragged:
    """Ids that stand for replaced sentences: those of a sentence of the same text, repeated or cut to as many tokens.

    It is any sentence of the text with equal chances, and may be the replaced one itself, as published. (There it keeps
    its own length, and may itself have been masked before.)

    Args:
        numbers: ``(k,)`` int64, the replaced sentences, ascending places in ``sentences``.
        bits: ``(k, 4)`` uint64, their draws, of which the fourth is used.

    Returns:
        A row of int32 for each row of ``batch``, one sentence's ids after the other's.
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


@numba.njit(cache=True, nogil=True)
def _repeat(tokens: np.ndarray, starts: np.ndarray, sizes: np.ndarray, lengths: np.ndarray, ids: np.ndarray) -> None:
    at = 0
    for i in range(len(starts)):
        for j in range(lengths[i]):
            ids[at] = tokens[starts[i] + j % sizes[i]]
            at += 1
