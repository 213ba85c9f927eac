"""Compiled loops of ``objectives.rouge.pairs``: counts that predictions share with references.

A text consists of *pieces*, a prediction and its references, line after line, so that all share one numbering of words.
The pieces of text i are ``firsts[i]:firsts[i + 1]``, the prediction first; piece p has the lines
``lines[p]:lines[p + 1]``. Each kernel returns one int64 for each reference, over all texts.
"""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled
from objectives.rouge.lcs import lcs_lengths, union_lcs
from objectives.rouge.ngrams import Ngrams, add_counts, count_shared


@compiled
def shared_ngrams(grams: Ngrams, lines: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """Count the n-grams shared with each reference; they may cross lines."""
    found = np.zeros(firsts[-1] - len(firsts) + 1, np.int64)
    most = grams.distinct.max() if len(grams.distinct) else 0
    counts, own = np.zeros(most, np.int64), np.zeros(most, np.int64)
    for text in range(len(firsts) - 1):
        predicted = _ngrams_of(grams, lines, firsts[text])
        add_counts(predicted, counts, 1)
        for piece in range(firsts[text] + 1, firsts[text + 1]):
            found[piece - text - 1] = count_shared(_ngrams_of(grams, lines, piece), counts, own)
        add_counts(predicted, counts, -1)
    return found


@compiled
def _ngrams_of(grams: Ngrams, lines: np.ndarray, piece: int) -> np.ndarray:
    begin, end = grams.bounds[lines[piece]], grams.bounds[lines[piece + 1]]
    return grams.ids[begin : max(begin, end - grams.size + 1)]


@compiled
def subsequences(
    ids: np.ndarray, bounds: np.ndarray, distinct: np.ndarray, lines: np.ndarray, firsts: np.ndarray
) -> np.ndarray:
    """Compute the length of the longest common subsequence with each reference; line ends are ignored.

    ``ids``: the words of all lines; line i is ``ids[bounds[i]:bounds[i + 1]]``.
    """
    found = np.zeros(firsts[-1] - len(firsts) + 1, np.int64)
    for text in range(len(firsts) - 1):
        pieces = lines[firsts[text] : firsts[text + 1] + 1]
        edges = np.empty(len(pieces), np.int64)
        for i in range(len(pieces)):
            edges[i] = bounds[pieces[i]]
        compared = np.ones(len(pieces) - 2, np.bool_)
        lengths = lcs_lengths(ids[edges[0] : edges[1]], ids, edges[1:], compared, distinct[text])
        found[firsts[text] - text : firsts[text + 1] - text - 1] = lengths
    return found


@compiled
def union_subsequences(
    ids: np.ndarray, bounds: np.ndarray, distinct: np.ndarray, lines: np.ndarray, firsts: np.ndarray
) -> np.ndarray:
    """Count the words in the unions of each reference line's longest common subsequences with the prediction's lines.

    A word counts at most as often as it occurs in the prediction, as in ROUGE-1.5.5 and ``rouge_score``. The arguments
    are those of ``subsequences``.
    """
    found = np.zeros(firsts[-1] - len(firsts) + 1, np.int64)
    most = distinct.max() if len(distinct) else 0
    counts, marks = np.zeros(most, np.int64), np.zeros(most, np.uint64)
    for text in range(len(firsts) - 1):
        own = bounds[lines[firsts[text]] : lines[firsts[text] + 1] + 1]
        for piece in range(firsts[text] + 1, firsts[text + 1]):
            add_counts(ids[own[0] : own[-1]], counts, 1)
            for line in range(lines[piece], lines[piece + 1]):
                sequence = ids[bounds[line] : bounds[line + 1]]
                taken = union_lcs(sequence, ids, own, marks)
                for i in range(len(sequence)):
                    if taken[i] and counts[sequence[i]] > 0:
                        counts[sequence[i]] -= 1
                        found[piece - text - 1] += 1
            for word in ids[own[0] : own[-1]]:
                counts[word] = 0
    return found
