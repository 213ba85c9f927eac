"""Compiled loops of ``objectives.rouge.sentence_scores``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corpora.compiled import compiled
from objectives.rouge.sequences import Ngrams, add_counts, count_shared, lcs_lengths


class Measure(NamedTuple):
    """Parameters that map n-gram counts to a score, for compiled code."""

    # (largest count + 1,) int64, weight of each count in units: integers, so that sums do not depend on their order and
    # equal sentences have equal scores
    worth: np.ndarray
    unit: float  # scale of the weights, a power of two
    least: float  # smallest denominator
    single: bool  # round to float32, like C++'s float


@compiled
def _f1(shared: int, taken: int, left: int, measure: Measure) -> float:
    """Compute F1 from the weights of n-grams: shared, in the selected sentences, in the rest."""
    if shared <= 0:
        return 0.0
    precision = shared * measure.unit / max(taken * measure.unit, measure.least)
    recall = shared * measure.unit / max(left * measure.unit, measure.least)
    if measure.single:
        p, r = np.float32(precision), np.float32(recall)
        return np.float64(np.float32(2) * p * r / (p + r))
    return 2 * precision * recall / (precision + recall)


@compiled
def _effect(taken: int, left: int, more: int, less: int, worth: np.ndarray) -> tuple[int, int, int]:
    """Compute how the weights shared, taken and left change if ``more`` of an n-gram are taken and ``less`` left."""
    old_taken, old_left = worth[taken], worth[left]
    new_taken, new_left = worth[taken + more], worth[left - less]
    return min(new_taken, new_left) - min(old_taken, old_left), new_taken - old_taken, new_left - old_left


@compiled
def _move(
    ids: np.ndarray, begin: int, end: int, more: int, less: int, taken: np.ndarray, left: np.ndarray, worth: np.ndarray
) -> tuple[int, int, int]:
    """Sum ``_effect`` over the n-grams at ``begin`` to ``end``, and update their counts."""
    shared = by_taken = by_left = 0
    for position in range(begin, end):
        gram = ids[position]
        effect = _effect(taken[gram], left[gram], more, less, worth)
        taken[gram] += more
        left[gram] -= less
        shared, by_taken, by_left = shared + effect[0], by_taken + effect[1], by_left + effect[2]
    return shared, by_taken, by_left


@compiled
def _count_all(grams: Ngrams, text: int, left: np.ndarray, worth: np.ndarray) -> int:
    """Count the n-grams of a text into ``left`` and return their total weight."""
    left[: grams.distinct[text]] = 0
    for position in range(grams.edges[text], grams.edges[text + 1] - grams.size + 1):
        left[grams.ids[position]] += 1
    total = 0
    for gram in range(grams.distinct[text]):
        total += worth[left[gram]]
    return total


@compiled
def slide(grams: Ngrams, sizes: np.ndarray, measure: Measure) -> np.ndarray:
    """Score all runs of ``sizes[i]`` sentences of text i, in order, float64."""
    ids, bounds, worth, reach = grams.ids, grams.bounds, measure.worth, grams.size - 1
    most = grams.distinct.max() if len(grams.distinct) else 0
    taken, left = np.empty(most, np.int64), np.empty(most, np.int64)
    scores = np.empty(len(bounds) - 1, np.float64)
    run = 0
    for text in range(len(grams.distinct)):
        taken[: grams.distinct[text]] = 0
        shared, by_taken, by_left = 0, 0, _count_all(grams, text, left, worth)
        for newest in range(grams.sentences[text], grams.sentences[text + 1]):
            a, b = bounds[newest], bounds[newest + 1] - reach
            effect = _move(ids, a, b, 1, 1, taken, left, worth)
            shared, by_taken, by_left = shared + effect[0], by_taken + effect[1], by_left + effect[2]
            oldest = newest - sizes[text] + 1
            if oldest < grams.sentences[text]:
                continue
            scores[run] = _f1(shared, by_taken, by_left, measure)
            run += 1
            a, b = bounds[oldest], bounds[oldest + 1] - reach
            effect = _move(ids, a, b, -1, -1, taken, left, worth)
            shared, by_taken, by_left = shared + effect[0], by_taken + effect[1], by_left + effect[2]
    return scores[:run]


@compiled
def pick(grams: Ngrams, offsets: np.ndarray, measure: Measure, later: bool, order: np.ndarray) -> np.ndarray:
    """Take ``offsets[i + 1] - offsets[i]`` sentences of text i greedily, each the best after those before it.

    For each sentence, the effect of taking it on the weights shared, taken and left is kept up to date. Taking a
    sentence changes few of these effects, because an n-gram with many occurrences left is shared anyway.

    Returns their scores, float64.
    """
    worth = measure.worth
    scores = np.empty(len(order), np.float64)
    for text in range(len(grams.distinct)):
        first, last = grams.sentences[text], grams.sentences[text + 1]
        index = _index(grams, text)
        taken, left = np.zeros(grams.distinct[text], np.int64), np.empty(grams.distinct[text], np.int64)
        shared, by_taken, by_left = 0, 0, _count_all(grams, text, left, worth)
        effects = np.zeros((last - first, 3), np.int64)
        for entry in range(len(index.grams)):
            gram, count = index.grams[entry], index.counts[entry]
            effect = _effect(0, left[gram], count, count, worth)
            for i in range(3):
                effects[index.sentences[entry], i] += effect[i]
        gone = np.zeros(last - first, np.bool_)
        for step in range(offsets[text], offsets[text + 1]):
            best, choice = -1.0, -1
            for sentence in range(last - first):
                if gone[sentence]:
                    continue
                own, both = (
                    shared + effects[sentence, 0],
                    by_taken + by_left + effects[sentence, 1] + effects[sentence, 2],
                )
                # F1 is at most 2 shared / both sides; this bound rules out most sentences without a division, with a
                # margin for rounding
                if 2.0 * own < best * (1 - 1e-6) * both:
                    continue
                score = _f1(own, by_taken + effects[sentence, 1], by_left + effects[sentence, 2], measure)
                if score > best or (later and score == best):
                    best, choice = score, sentence
            order[step], scores[step], gone[choice] = choice, best, True
            more, own, rest = effects[choice, 0], effects[choice, 1], effects[choice, 2]
            shared, by_taken, by_left = shared + more, by_taken + own, by_left + rest
            _take(index, choice, gone, taken, left, worth, effects)
    return scores


class Index(NamedTuple):
    """Inverted index of a text's n-grams: one entry for each distinct n-gram of each sentence; all int64."""

    bounds: np.ndarray  # (sentences + 1,) the entries of each sentence
    sentences: np.ndarray  # (entries,)
    grams: np.ndarray  # (entries,)
    counts: np.ndarray  # (entries,)
    starts: np.ndarray  # (distinct + 1,) start of each n-gram in ``holders``
    holders: np.ndarray  # (entries,) entries by n-gram
    most: np.ndarray  # (distinct,) the largest count of each n-gram in one sentence


@compiled
def _index(grams: Ngrams, text: int) -> Index:
    first, last, distinct = grams.sentences[text], grams.sentences[text + 1], grams.distinct[text]
    room = grams.edges[text + 1] - grams.edges[text]
    sentences, held, counts = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    bounds = np.zeros(last - first + 1, np.int64)
    entry_of = np.full(distinct, -1, np.int64)  # the newest entry of each n-gram
    starts, most = np.zeros(distinct + 1, np.int64), np.zeros(distinct, np.int64)
    end = 0
    for sentence in range(first, last):
        for position in range(grams.bounds[sentence], grams.bounds[sentence + 1] - grams.size + 1):
            gram = grams.ids[position]
            if entry_of[gram] < bounds[sentence - first]:
                entry_of[gram] = end
                sentences[end], held[end], counts[end] = sentence - first, gram, 0
                starts[gram + 1] += 1
                end += 1
            counts[entry_of[gram]] += 1
            most[gram] = max(most[gram], counts[entry_of[gram]])
        bounds[sentence - first + 1] = end
    starts = np.cumsum(starts)
    holders, filled = np.empty(end, np.int64), starts.copy()
    for entry in range(end):
        holders[filled[held[entry]]] = entry
        filled[held[entry]] += 1
    return Index(bounds, sentences[:end], held[:end], counts[:end], starts, holders, most)


@compiled
def _take(
    index: Index,
    choice: int,
    gone: np.ndarray,
    taken: np.ndarray,
    left: np.ndarray,
    worth: np.ndarray,
    effects: np.ndarray,
) -> None:
    """Count a sentence's n-grams as taken, and update the effects of the sentences that share them."""
    for entry in range(index.bounds[choice], index.bounds[choice + 1]):
        gram, count = index.grams[entry], index.counts[entry]
        old_taken, old_left = taken[gram], left[gram]
        new_taken, new_left = old_taken + count, old_left - count
        taken[gram], left[gram] = new_taken, new_left
        most = min(index.most[gram], new_left)
        # if the effects of 1 and of the largest count of a sentence have not changed, no effect in between has
        if _effect(old_taken, old_left, most, most, worth) == _effect(new_taken, new_left, most, most, worth) and (
            most <= 1 or _effect(old_taken, old_left, 1, 1, worth) == _effect(new_taken, new_left, 1, 1, worth)
        ):
            continue
        for place in range(index.starts[gram], index.starts[gram + 1]):
            holder = index.holders[place]
            sentence, more = index.sentences[holder], index.counts[holder]
            if not gone[sentence]:
                old = _effect(old_taken, old_left, more, more, worth)
                new = _effect(new_taken, new_left, more, more, worth)
                effects[sentence, 0] += new[0] - old[0]
                effects[sentence, 1] += new[1] - old[1]
                effects[sentence, 2] += new[2] - old[2]


@compiled
def score_clusters(
    ones: Ngrams, twos: Ngrams, documents: np.ndarray, offsets: np.ndarray, measure: Measure
) -> np.ndarray:
    """Compute Cluster ROUGE of every sentence, ``(sentences,)`` float64.

    ``documents``, ``offsets``: cluster i's documents start at sentences ``documents[offsets[i]:offsets[i + 1]]``.
    """
    bounds = ones.bounds
    scores = np.zeros(len(bounds) - 1, np.float64)
    most = max(ones.distinct.max(), twos.distinct.max()) if len(ones.distinct) else 0
    own, single, double = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)
    for cluster in range(len(ones.distinct)):
        first, last = ones.sentences[cluster], ones.sentences[cluster + 1]
        shared = np.zeros(last - first, np.int64)
        for i in range(offsets[cluster], offsets[cluster + 1]):
            begin = first + documents[i]
            end = first + documents[i + 1] if i + 1 < offsets[cluster + 1] else last
            a, b = bounds[begin], bounds[end]
            add_counts(ones.ids[a:b], single, 1)
            add_counts(twos.ids[a : max(a, b - 1)], double, 1)
            for sentence in range(first, last):
                other = sentence < begin or sentence >= end
                words = ones.ids[bounds[sentence] : bounds[sentence + 1]]
                shared[sentence - first] = count_shared(words, single, own) if other else 0
            # a common subsequence is no longer than the shared words, so with one shared word its length is 1
            lengths = lcs_lengths(ones.ids[a:b], ones.ids, bounds[first : last + 1], shared > 1, ones.distinct[cluster])
            for sentence in range(first, last):
                common = shared[sentence - first]
                if common == 0:
                    continue
                size = bounds[sentence + 1] - bounds[sentence]
                pairs = twos.ids[bounds[sentence] : bounds[sentence + 1] - 1]
                scores[sentence] += (
                    _f1(common, size, b - a, measure)
                    + _f1(count_shared(pairs, double, own), size - 1, b - a - 1, measure)
                    + _f1(max(lengths[sentence - first], 1), size, b - a, measure)
                ) / 3
            add_counts(ones.ids[a:b], single, -1)
            add_counts(twos.ids[a : max(a, b - 1)], double, -1)
    return scores
