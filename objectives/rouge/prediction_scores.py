"""ROUGE of predictions against references, equal to ``rouge_score``: precision, recall and F1 of whole batches.

In the compiled loops, a text consists of *pieces*, a prediction and its references, line after line, so that all share
one numbering of words. The pieces of text i are ``firsts[i]:firsts[i + 1]``, the prediction first; piece p has the
lines ``lines[p]:lines[p + 1]``. Each kernel returns one int64 for each reference, over all texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from corpora.compiled import compiled
from corpora.storage.ragged import Ragged
from objectives.rouge.sequences import Ngrams, add_counts, count_shared, lcs_lengths, number_ngrams, union_lcs
from objectives.rouge.words import Words, split_words

MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_BLOCK = 1 << 22  # characters scored at a time, to bound the memory


def pair_scores(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    measures: Sequence[str] = MEASURES,
    stem: bool = False,
) -> dict[str, np.ndarray]:
    """Score each prediction against each of its references.

    Source: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries"; results equal ``rouge_score``'s
    ``RougeScorer(measures, use_stemmer=stem).score(reference, prediction)``. The longest common subsequences come from
    bit-parallel rows of 64 words, so a pair costs the product of its lengths over 64.

    ``measures``: any of ``rouge1`` to ``rouge9``; ``rougeL``, which takes a text as one sequence; and ``rougeLsum``,
    the union of the subsequences of sentences, which are lines. Returns for each measure ``(references of all
    predictions, 3)`` float64: precision, recall and F1, from 0 to 1.
    """
    parts: dict[str, list[np.ndarray]] = {name: [np.empty((0, 3))] for name in measures}
    for begin, end in _blocks(predictions, references):
        block = _score_block(predictions[begin:end], references[begin:end], measures, stem)
        for name, scores in block.items():
            parts[name].append(scores)
    return {name: np.concatenate(scores) for name, scores in parts.items()}


def _blocks(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[tuple[int, int]]:
    begin = size = 0
    for i, (prediction, texts) in enumerate(zip(predictions, references, strict=True)):
        size += len(prediction) + sum(map(len, texts))
        if size >= _BLOCK:
            yield begin, i + 1
            begin, size = i + 1, 0
    if begin < len(predictions):
        yield begin, len(predictions)


def _score_block(
    predictions: Sequence[str], references: Sequence[Sequence[str]], measures: Sequence[str], stem: bool
) -> dict[str, np.ndarray]:
    counts = np.array([len(texts) for texts in references])
    firsts = np.append(0, np.cumsum(counts + 1))
    words, lines = _split(predictions, references, firsts, "rougeLsum" in measures, stem)
    bounds = words.ids.offsets
    sizes = np.diff(bounds[lines])  # words of each piece
    is_prediction = np.zeros(len(sizes), np.bool_)
    is_prediction[firsts[:-1]] = True
    predicted, expected = np.repeat(sizes[is_prediction], counts), sizes[~is_prediction]
    arguments = (words.ids.values, bounds, words.distinct, lines, firsts)
    result = {}
    for name in measures:
        if name == "rougeL":
            result[name] = _fractions(subsequences(*arguments), predicted, expected)
        elif name == "rougeLsum":
            result[name] = _fractions(union_subsequences(*arguments), predicted, expected)
        else:
            n = int(name[-1])
            shared = count_shared_ngrams(number_ngrams(words, n), lines, firsts)
            result[name] = _fractions(shared, predicted - n + 1, expected - n + 1)
    return result


def _split(
    predictions: Sequence[str], references: Sequence[Sequence[str]], firsts: np.ndarray, by_line: bool, stem: bool
) -> tuple[Words, np.ndarray]:
    """Split each prediction with its references, as one text, into words; return also the first line of each piece."""
    texts, starts, sizes = [], [], []
    for prediction, others in zip(predictions, references, strict=True):
        # a lone surrogate is not a letter, and cannot be encoded
        pieces = [piece.encode("utf-8", "replace").decode() + "\n" for piece in (prediction, *others)]
        text = "".join(pieces)
        ends = np.cumsum([0, *map(len, pieces)])
        begins = np.array([0, *(match.end() for match in re.finditer("\n", text))]) if by_line else ends
        texts.append(text)
        starts.append(begins[:-1])
        sizes.append(np.diff(np.searchsorted(begins, ends)))
    lines = np.append(0, np.cumsum(np.concatenate(sizes)))
    assert len(lines) == firsts[-1] + 1
    return split_words(texts, Ragged.from_rows(starts, np.int64), stem=stem), lines


def _fractions(shared: np.ndarray, predicted: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Compute precision, recall and F1, ``(pairs, 3)``, in the order of operations of ``rouge_score``."""
    precision, recall = shared / np.maximum(predicted, 1), shared / np.maximum(expected, 1)
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros(len(shared)), where=total > 0)
    return np.stack([precision, recall, f1], axis=1)


@compiled
def count_shared_ngrams(grams: Ngrams, lines: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """Count the n-grams shared with each reference; they may cross lines."""
    result = np.zeros(firsts[-1] - len(firsts) + 1, np.int64)
    most = grams.distinct.max() if len(grams.distinct) else 0
    counts, own = np.zeros(most, np.int64), np.zeros(most, np.int64)
    for text in range(len(firsts) - 1):
        predicted = _ngrams_of(grams, lines, firsts[text])
        add_counts(predicted, counts, 1)
        for piece in range(firsts[text] + 1, firsts[text + 1]):
            result[piece - text - 1] = count_shared(_ngrams_of(grams, lines, piece), counts, own)
        add_counts(predicted, counts, -1)
    return result


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
    result = np.zeros(firsts[-1] - len(firsts) + 1, np.int64)
    for text in range(len(firsts) - 1):
        pieces = lines[firsts[text] : firsts[text + 1] + 1]
        edges = np.empty(len(pieces), np.int64)
        for i in range(len(pieces)):
            edges[i] = bounds[pieces[i]]
        compared = np.ones(len(pieces) - 2, np.bool_)
        lengths = lcs_lengths(ids[edges[0] : edges[1]], ids, edges[1:], compared, distinct[text])
        result[firsts[text] - text : firsts[text + 1] - text - 1] = lengths
    return result


@compiled
def union_subsequences(
    ids: np.ndarray, bounds: np.ndarray, distinct: np.ndarray, lines: np.ndarray, firsts: np.ndarray
) -> np.ndarray:
    """Count the words in the unions of each reference line's longest common subsequences with the prediction's lines.

    A word counts at most as often as it occurs in the prediction, as in ROUGE-1.5.5 and ``rouge_score``. The arguments
    are those of ``subsequences``.
    """
    result = np.zeros(firsts[-1] - len(firsts) + 1, np.int64)
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
                        result[piece - text - 1] += 1
            for word in ids[own[0] : own[-1]]:
                counts[word] = 0
    return result
