"""ROUGE of predictions against references, equal to ``rouge_score``: precision, recall and F1 of whole batches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from objectives.rouge.ngrams import number_ngrams
from objectives.rouge.pair_kernels import shared_ngrams, subsequences, union_subsequences
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
    for name in measures:
        if name not in MEASURES and not re.fullmatch("rouge[1-9]", name):
            raise FarspanError(f"measure {name!r} is unknown; give rouge1 to rouge9, rougeL or rougeLsum")
    parts: dict[str, list[np.ndarray]] = {name: [np.empty((0, 3))] for name in measures}
    for begin, end in _blocks(predictions, references):
        found = _score_block(predictions[begin:end], references[begin:end], measures, stem)
        for name, scores in found.items():
            parts[name].append(scores)
    return {name: np.concatenate(scores) for name, scores in parts.items()}


def _blocks(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[tuple[int, int]]:
    begin = size = 0
    for i, (prediction, own) in enumerate(zip(predictions, references, strict=True)):
        size += len(prediction) + sum(map(len, own))
        if size >= _BLOCK:
            yield begin, i + 1
            begin, size = i + 1, 0
    if begin < len(predictions):
        yield begin, len(predictions)


def _score_block(
    predictions: Sequence[str], references: Sequence[Sequence[str]], measures: Sequence[str], stem: bool
) -> dict[str, np.ndarray]:
    counts = np.array([len(own) for own in references])
    firsts = np.append(0, np.cumsum(counts + 1))
    words, lines = _split(predictions, references, firsts, "rougeLsum" in measures, stem)
    bounds = words.ids.offsets
    sizes = np.diff(bounds[lines])  # words of each piece
    is_prediction = np.zeros(len(sizes), np.bool_)
    is_prediction[firsts[:-1]] = True
    predicted, given = np.repeat(sizes[is_prediction], counts), sizes[~is_prediction]
    arguments = (words.ids.values, bounds, words.distinct, lines, firsts)
    found = {}
    for name in measures:
        if name == "rougeL":
            found[name] = _fractions(subsequences(*arguments), predicted, given)
        elif name == "rougeLsum":
            found[name] = _fractions(union_subsequences(*arguments), predicted, given)
        else:
            n = int(name[-1])
            shared = shared_ngrams(number_ngrams(words, n), lines, firsts)
            found[name] = _fractions(shared, predicted - n + 1, given - n + 1)
    return found


def _split(
    predictions: Sequence[str], references: Sequence[Sequence[str]], firsts: np.ndarray, by_line: bool, stem: bool
) -> tuple[Words, np.ndarray]:
    """Split each prediction with its references, as one text, into words; return also the first line of each piece."""
    texts, starts, sizes = [], [], []
    for prediction, own in zip(predictions, references, strict=True):
        # a lone surrogate is not a letter, and cannot be encoded
        pieces = [piece.encode("utf-8", "replace").decode() + "\n" for piece in (prediction, *own)]
        text = "".join(pieces)
        ends = np.cumsum([0, *map(len, pieces)])
        begins = np.array([0, *(found.end() for found in re.finditer("\n", text))]) if by_line else ends
        texts.append(text)
        starts.append(begins[:-1])
        sizes.append(np.diff(np.searchsorted(begins, ends)))
    lines = np.append(0, np.cumsum(np.concatenate(sizes)))
    assert len(lines) == firsts[-1] + 1
    return split_words(texts, Ragged.from_rows(starts, np.int64), stem=stem), lines


def _fractions(shared: np.ndarray, predicted: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Compute precision, recall and F1, ``(pairs, 3)``, in the order of operations of ``rouge_score``."""
    precision, recall = shared / np.maximum(predicted, 1), shared / np.maximum(given, 1)
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros(len(shared)), where=total > 0)
    return np.stack([precision, recall, f1], axis=1)
