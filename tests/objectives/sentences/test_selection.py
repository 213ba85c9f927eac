"""Selection of sentences: their texts, order, spans and presets."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from corpora.keyed import make_key
from corpora.storage.ragged import Ragged
from objectives.sentences.selection import (
    choose_best,
    count_spaced_words,
    draw,
    find_sentences,
    pick_counts,
    sentence_ends,
    uniform,
    with_noise,
)
from objectives.sentences.spans import choose_treatments
from tests.factories import make_sequences, sequence_batches
from tests.objectives.texts import documents, starts_of

KEY = make_key(0, "test")


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
    found = find_sentences(replace(batch, sentence_starts=sentences), "document")
    assert (found.starts.tolist(), found.lengths.tolist()) == ([0, 2, 4], [2, 2, 2])
    assert found.texts.tolist() == [0, 0, 2, 3]


def test_the_precision_of_the_product_decides_at_some_sizes():
    sizes = np.array([90, 340])
    assert pick_counts(sizes, 0.7, "down", "float64").tolist() == [62, 237]  # 62.99999999999999
    assert pick_counts(sizes, 0.7, "down", "float32").tolist() == [63, 238]
    assert pick_counts(sizes, np.array([0.7, 0.1]), "down", "float32").tolist() == [63, 34]


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


@pytest.mark.parametrize(
    ("chances", "lowest", "highest"),
    [
        ([0.7, 0.1, 0.1, 0.1], 0, 3),  # adds up to a little less than 1
        ([0.9, 0.0, 0.1, 0.0], 0, 2),
        ([0.0, 1.0, 0.0, 0.0], 1, 1),
        ([0.0, 0.3, 0.0, 0.7], 1, 3),
    ],
)
def test_no_draw_leaves_the_treatments_that_have_a_chance(chances, lowest, highest):
    draws = np.zeros((2, 4), np.uint64)
    draws[1] = 2**64 - 1
    assert choose_treatments(draws, chances).tolist() == [lowest, highest]


@given(documents)
def test_words_are_counted_as_python_splits(texts):
    starts = starts_of(texts)
    joined = ["".join(sentences) for sentences in texts]
    expected = [len(sentence.split()) for sentences in texts for sentence in sentences]
    assert count_spaced_words(joined, starts).tolist() == expected
    sizes = np.array([len(sentence) for sentences in texts for sentence in sentences], np.int64)
    assert np.array_equal(sentence_ends(joined, starts), starts.values + sizes)


@given(st.text("a \t\x1c\x85\xa0\u2028\u3000\u3001\u200b\u4e2d\U0001f600"))
def test_every_white_space_of_unicode_parts_words(text):
    assert count_spaced_words([text], Ragged.from_rows([[0]], np.int64)).tolist() == [len(text.split())]
