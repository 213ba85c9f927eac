"""Sentences, draws, numbers of picks, and the distributions of what is random."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from corpora.keyed import id_keys, make_key
from corpora.storage.ragged import Ragged
from objectives.sentences.selection import (
    Choice,
    Sentences,
    choose_best,
    choose_windows,
    draw,
    find_sentences,
    order_in_rows,
    pick_counts,
    uniform,
    with_noise,
)
from tests.factories import make_sequences, sequence_batches

KEY = make_key(0, "test")


def one_text(sentences: int) -> Sentences:
    places = np.arange(sentences)
    return Sentences(places, np.ones_like(places), np.array([0, sentences]), np.array([0, 1]))


@given(sequence_batches())
def test_sentences_are_what_lies_between_the_borders(batch):
    for scope in ("document", "sequence"):
        found = find_sentences(batch, scope)
        assert len(found.rows) == len(batch) + 1
        for row in range(len(batch)):
            borders = {*batch.document_starts[row].tolist(), *batch.sentence_starts[row].tolist()}
            cuts = [*sorted(borders), int(batch.tokens.lengths[row])]
            first, last = found.texts[found.rows[row]], found.texts[found.rows[row + 1]]
            assert found.starts[first:last].tolist() == cuts[:-1] * (len(cuts) > 1)
            assert found.lengths[first:last].tolist() == np.diff(cuts).tolist()
            texts = found.texts[found.rows[row] : found.rows[row + 1]]
            parts = batch.document_starts[row].tolist()
            assert found.starts[texts[texts < last]].tolist() == (parts if scope == "document" else parts[:1])


def test_sentences_and_parts_without_tokens_are_none():
    batch = make_sequences([6], [[0, 0, 4]])
    batch.sentence_starts.values[:] = 4
    sentences = Ragged.from_rows([[0, 0, 2, 2, 4, 6]], np.int32)
    odd = type(batch)(**{**{name: getattr(batch, name) for name in batch.__slots__}, "sentence_starts": sentences})
    found = find_sentences(odd, "document")
    assert (found.starts.tolist(), found.lengths.tolist()) == ([0, 2, 4], [2, 2, 2])
    assert found.texts.tolist() == [0, 0, 2, 3]


def test_draws_are_numpys_philox_of_the_text():
    batch = make_sequences([40, 0, 90], 4, mean_sentence=3)
    sentences = find_sentences(batch, "document")
    draws = draw(KEY, batch, sentences)
    for row in range(3):
        for number, text in enumerate(range(sentences.rows[row], sentences.rows[row + 1])):
            key = id_keys(KEY, [batch.sequence_id(row) + bytes([number, 0, 0, 0])])[0]
            words = np.random.Philox(key=key).random_raw(4 + 4 * int(sentences.sizes[text])).reshape(-1, 4)
            assert np.array_equal(draws.texts[text], words[0])
            assert np.array_equal(draws.sentences[sentences.texts[text] : sentences.texts[text + 1]], words[1:])


@given(st.integers(0, 5000), st.floats(0.001, 1.0))
def test_picks_follow_the_published_formulas(size, ratio):
    (down,), (up,) = (pick_counts(np.array([size]), ratio, rounding, "float64") for rounding in ("down", "up"))
    assert down == min(int(max(size * ratio, 1)), size)
    assert up == min(math.ceil(size * ratio), size)


def test_the_precision_of_the_product_decides_at_some_sizes():
    sizes = np.array([90, 340])
    assert pick_counts(sizes, 0.7, "down", "float64").tolist() == [62, 237]  # 62.99999999999999
    assert pick_counts(sizes, 0.7, "down", "float32").tolist() == [63, 238]
    assert pick_counts(sizes, np.array([0.7, 0.1]), "down", "float32").tolist() == [63, 34]


def test_ties_and_windows_by_hand():
    scores = np.array([1.0, 3.0, 2.0, 3.0])
    for ties, best in (("earlier", [1, 3, 2]), ("later", [3, 1, 2])):
        choice = choose_best(scores, one_text(4), np.array([3]), ties)
        assert choice.numbers[0].tolist() == best
        assert choice.scores[0].tolist() == [3.0, 3.0, 2.0]
    windows = Ragged.from_rows([[1.0, 5.0, 5.0]], float)
    for ties, first in (("earlier", 1), ("later", 2)):
        choice = choose_windows(windows, one_text(4), np.array([2]), ties)
        assert choice.numbers[0].tolist() == [first, first + 1]
        assert choice.scores[0].tolist() == [5.0, 5.0]


def test_a_greedy_text_keeps_its_order_among_those_of_its_row():
    """Scores may rise within a text; what they rise to has to wait for what was chosen before."""
    two = Sentences(np.arange(6), np.ones(6, int), np.array([0, 3, 6]), np.array([0, 2]))
    choice = Choice(Ragged.from_rows([[2, 0, 1], [4, 3]], int), Ragged.from_rows([[5.0, 1.0, 7.0], [5.0, 3.0]], float))
    assert order_in_rows(choice, two, "earlier").numbers[0].tolist() == [2, 4, 3, 0, 1]
    assert order_in_rows(choice, two, "later").numbers[0].tolist() == [4, 2, 3, 0, 1]


def test_noise_is_normal_with_the_square_of_its_name():
    bits = np.random.Philox(1).random_raw(80_000).reshape(-1, 4)
    assert stats.kstest(uniform(bits[:, 0]), "uniform").pvalue > 0.01
    # noise .2 moves a score by .04 (one standard deviation), not by .2
    for precision in ("float64", "float32"):
        scores = with_noise(np.full(20_000, 0.5, precision), bits, 0.2, precision)
        assert scores.dtype == precision
        assert stats.kstest((scores / 0.5 - 1) / 0.04, "norm").pvalue > 0.01


def test_random_choice_is_uniform_over_subsets():
    """All 20 sets of 3 of 6 sentences have equal chances, and all 6 orders of each."""
    batch = make_sequences([6] * 6000, mean_sentence=1)
    sentences = find_sentences(batch, "document")
    scores = uniform(draw(KEY, batch, sentences).sentences[:, 0])
    choice = choose_best(scores, sentences, np.full(6000, 3), "earlier")
    chosen = Counter(map(tuple, (choice.numbers.values - 6 * np.repeat(np.arange(6000), 3)).reshape(-1, 3).tolist()))
    orders = [chosen[order] for order in itertools.permutations(range(6), 3)]
    assert stats.chisquare(orders).pvalue > 0.01
