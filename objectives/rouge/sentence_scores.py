"""Exact ROUGE F1 of sentences against the rest of their text, from incrementally updated counts.

Each n-gram has two counts: in the sentences taken and in the rest. Moving a sentence from one to the other changes the
shared and total counts for its own n-grams only, so the cost of a score is linear in the moved sentences.

For n > 1, the rest has the n-grams of the document minus those within the sentences taken, so n-grams that only start
or end in one of these are kept, as in PEGASUS's code (Zhang et al. 2020, section 3.1; ``RougeSentenceData``).
"""

from __future__ import annotations

from decimal import Context, Decimal
from functools import lru_cache

import numpy as np

from corpora.storage.ragged import Ragged
from objectives.rouge.sentence_kernels import Measure, pick, score_clusters, slide
from objectives.rouge.sequences import number_ngrams
from objectives.rouge.words import Words

COUNTS = ("orig", "uniq", "log")
PRECISIONS = ("float64", "float32")
TIES = ("earlier", "later")
_LOG_BITS = 40


def sentence_scores(words: Words, *, n: int = 1, counts: str = "orig", precision: str = "float64") -> Ragged:
    """Compute ROUGE-n F1 of every sentence against the rest of its text (Ind): n rows, one number per sentence.

    Source: Zhang et al. 2020 (PEGASUS), section 3.1, Ind-Orig and Ind-Uniq. Time and memory are linear in the words.

    ``counts``: weight of an n-gram: ``orig``: its number of occurrences, the smaller of both sides being shared;
    ``uniq``: 1; ``log``: log(1 + occurrences), rounded to 2**-40. Precision and recall are the shared weight divided by
    the sum of the side, or by 1 if that is smaller (``log``: 0.1). So a sentence without words, or whose words occur
    nowhere else, scores 0. ``precision``: ``float64`` as in ``rouge_score``; ``float32`` in the order of operations of
    PEGASUS's C++, which gives more ties. Returns n rows of float64 or float32.
    """
    measure = _measure(words, counts, precision)
    sizes = np.ones(len(words.distinct), np.int64)
    return _rows(slide(number_ngrams(words, n), sizes, measure), words.sentences, precision)


def window_scores(
    words: Words, sizes: np.ndarray, *, n: int = 1, counts: str = "orig", precision: str = "float64"
) -> Ragged:
    """Score every run of ``sizes[i]`` sentences of text i against the rest of the text (PEGASUS's ``continuous``).

    The run's n-grams are those within its sentences. ``sizes``: ``(texts,)`` integers, at least 1; at most all
    sentences of a text are used. Returns n rows, one number for each sentence at which a run can start.
    """
    measure = _measure(words, counts, precision)
    held = np.diff(words.sentences)
    sizes = np.clip(np.asarray(sizes, np.int64), 1, np.maximum(held, 1))
    offsets = Ragged.from_lengths(held[:0], np.where(held > 0, held - sizes + 1, 0)).offsets
    return _rows(slide(number_ngrams(words, n), sizes, measure), offsets, precision)


def select_greedily(
    words: Words,
    picks: np.ndarray,
    *,
    n: int = 1,
    counts: str = "orig",
    ties: str = "earlier",
    precision: str = "float64",
) -> tuple[Ragged, Ragged]:
    """Select sentences greedily: each one, together with those before it, scores best against the rest (Seq).

    Source: Zhang et al. 2020 (PEGASUS), section 3.1, Seq-Orig and Seq-Uniq. The n-grams of a selection are those within
    its sentences. An inverted index gives the sentences that a step affects, so the cost of a step is the number of
    occurrences whose contribution changes, plus one comparison per remaining sentence.

    ``picks``: ``(texts,)`` integers; at most all sentences of a text are taken. ``ties``: the one of equal sentences
    that is taken; PEGASUS's code takes the later. Returns the numbers of the sentences in their text, int32, in the
    order in which they were taken, and the score of each together with all before it.
    """
    measure = _measure(words, counts, precision)
    picks = np.clip(np.asarray(picks, np.int64), 0, np.diff(words.sentences))
    order = Ragged.from_lengths(np.empty(picks.sum(), np.int32), picks)
    scores = pick(number_ngrams(words, n), order.offsets, measure, ties == "later", order.values)
    return order, _rows(scores, order.offsets, precision)


def cluster_scores(words: Words, documents: Ragged) -> Ragged:
    """Compute Cluster ROUGE of every sentence: the sum over the other documents of the mean F1 of ROUGE-1, 2 and L.

    Source: Xiao et al. 2022 (PRIMERA), section 3.1. Each F1 equals that of ``rouge_score`` for the document as one
    string and the sentence, with its stemmer if the words were stemmed.

    ``documents``: one row per cluster: first sentence of each document in the cluster, ascending from 0. Returns
    float64, one row per cluster, one number per sentence.
    """
    measure = _measure(words, "orig", "float64")
    documents = documents.compact()
    starts = documents.values.astype(np.int64)  # one compiled version for all types of integers
    scores = score_clusters(number_ngrams(words, 1), number_ngrams(words, 2), starts, documents.offsets, measure)
    return Ragged(scores, words.sentences)


def _measure(words: Words, counts: str, precision: str) -> Measure:
    number = np.arange(np.diff(words.edges).max(initial=0) + 1)
    single = precision == "float32"
    if counts == "log":
        return Measure(_logarithms(int(len(number) - 1).bit_length())[: len(number)], 2.0**-_LOG_BITS, 0.1, single)
    return Measure(np.minimum(number, 1) if counts == "uniq" else number, 1.0, 1.0, single)


@lru_cache(maxsize=1)
def _logarithms(bits: int) -> np.ndarray:
    """Compute log(1 + count) in units of 2**-40 for every count below ``2**bits``, int64.

    float64 logarithms differ between processors by a hundredth of a unit, so values near a half are computed with more
    digits before they are rounded.
    """
    scaled = np.log1p(np.arange(1 << bits)) * 2.0**_LOG_BITS
    worth = np.rint(scaled).astype(np.int64)
    context = Context(prec=40)
    for count in np.flatnonzero(np.abs(scaled % 1 - 0.5) < 2.0**-5).tolist():
        exact = context.multiply(context.ln(Decimal(1 + count)), Decimal(1 << _LOG_BITS))
        worth[count] = int(exact.to_integral_value(context=context))
    return worth


def _rows(scores: np.ndarray, offsets: np.ndarray, precision: str) -> Ragged:
    return Ragged(scores.astype(precision, copy=False), offsets)
