"""Selection of sentences: their texts, order, spans and presets."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from corpora.keyed import id_keys, make_key
from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, MaskBatch
from objectives.principal_sentences import PRESETS, PrincipalSentences
from objectives.sentences.selection import (
    Choice,
    Sentences,
    choose_best,
    choose_windows,
    count_spaced_words,
    draw,
    find_sentences,
    order_in_rows,
    pick_counts,
    sentence_ends,
    uniform,
    with_noise,
)
from objectives.sentences.spans import choose_treatments, within_target
from tests.factories import make_sequences, sequence_batches
from tests.objectives.texts import documents, starts_of

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


def ranked(rows: list[list[int]]) -> MaskBatch:
    """Rows of spans with the given lengths, by rank; they stand in the row in the opposite order."""
    lengths = Ragged.from_rows([row[::-1] for row in rows], np.int32)
    starts = Ragged.from_rows([np.cumsum([0, *row[::-1]])[:-1] for row in rows], np.int32)
    flags = [[(IN_SOURCE | IN_TARGET, REPLACED | IN_TARGET)[i % 2] for i in range(len(row))] for row in rows]
    zeros = np.zeros(len(rows), np.int32)
    ids = [
        np.concatenate([[10 * i + j for j in range(n)] for i, n in enumerate(row[::-1]) if i % 2] or [[]])
        for row in rows
    ]
    return MaskBatch(
        np.zeros((len(rows), 16), np.uint8),
        starts,
        lengths,
        Ragged.from_rows(flags, np.uint8),
        zeros,
        zeros,
        span_scores=Ragged.from_rows([[float(n) for n in row[::-1]] for row in rows], np.float32),
        span_ranks=Ragged.from_rows([range(len(row))[::-1] for row in rows], np.int32),
        replacements=Ragged.from_rows(ids, np.int32),
    )


@pytest.mark.parametrize(
    ("lengths", "room", "when_full", "kept"),
    [
        ([5, 4, 2, 1], 8, "skip", [1, 2, 5]),  # 4 no longer fits, what follows does
        ([5, 4, 2, 1], 8, "stop", [5]),
        ([5, 4, 2, 1], 12, "stop", [1, 2, 4, 5]),
        ([9, 2], 8, "skip", [2]),
        ([9, 2], 8, "stop", [8]),  # the first is cut: nothing else may come before it
        ([9, 20], 8, "skip", [8]),  # not one fits
        ([1], 1, "skip", [1]),
        ([], 1, "skip", []),
    ],
)
def test_what_fits_by_hand(lengths, room, when_full, kept):
    masks = within_target(ranked([[3], lengths, []]), room, when_full)
    assert masks.span_lengths[1].tolist() == kept
    assert masks.span_lengths[0].tolist() == [min(3, room)]
    assert masks.span_ranks[1].tolist() == list(range(len(kept)))[::-1]
    assert [len(masks.span_lengths[row]) for row in (0, 2)] == [1, 0]


@given(
    st.lists(st.lists(st.integers(1, 9), max_size=7), max_size=4), st.integers(1, 30), st.sampled_from(["skip", "stop"])
)
def test_columns_stay_together(rows, room, when_full):
    masks = ranked(rows)
    chosen = within_target(masks, room, when_full)
    for row in range(len(rows)):
        whole = {start: i for i, start in enumerate(masks.span_starts[row].tolist())}
        places = [whole[start] for start in chosen.span_starts[row].tolist()]
        taken = chosen.span_lengths[row]
        assert taken.sum() <= room
        assert len(places) > 0 or not rows[row]
        assert (taken == masks.span_lengths[row][places]).all() or (len(taken) == 1 and taken[0] == room)
        assert np.array_equal(chosen.span_flags[row], masks.span_flags[row][places])
        assert np.array_equal(chosen.span_scores[row], masks.span_scores[row][places])
        assert np.array_equal(np.argsort(chosen.span_ranks[row]), np.argsort(masks.span_ranks[row][places]))
        ids = [10 * i + j for i, n in zip(places, taken, strict=True) if i % 2 for j in range(n)]
        assert chosen.replacements[row].tolist() == ids


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


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_gives_each_of_its_options(preset):
    options = PrincipalSentences(**PRESETS[preset]).options
    assert {name: options[name] for name in PRESETS[preset]} == dict(PRESETS[preset])


def test_target_lengths_are_those_of_the_systems():
    lengths = {name: options["target_length"] for name, options in PRESETS.items()}
    assert lengths == {
        "pegasus": 256,
        "pegasus_paper": 256,
        "pegasus_x": 256,
        "pegasus_x_4096": 256,
        "longt5_paper": 910,
        "longt5_code": 910,
        "bart_ls": 1024,
    }
