"""N-grams of words of texts in UTF-8, and the byte offsets of their characters."""

import itertools
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from corpora.text.utf8 import byte_offsets, character_offsets
from corpora.text.word_ngrams import jaccard, ngram_hashes, redundancy, sketch

texts = st.lists(st.text(st.sampled_from("abAB z9é中_-.\n😀"), max_size=40), max_size=6)
hash_rows = st.lists(st.lists(st.integers(0, 60), max_size=40), min_size=1, max_size=6)


def plain_ngrams(text, n):
    """The n-grams as tuples of words, by the regular expression that the definition amounts to."""
    words = [word.decode() for word in re.findall(rb"[0-9a-z\x80-\xff]+", text.encode().lower())]
    if len(words) < n:
        return [tuple(words)] if words else []
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


@given(texts, st.integers(1, 6))
def test_equal_ngrams_have_equal_hashes_and_others_have_not(strings, n):
    made = ngram_hashes(strings, n)
    assert made.values.dtype == np.uint32
    names = {}
    for row, text in enumerate(strings):
        expected = plain_ngrams(text, n)
        assert len(made[row]) == len(expected)
        for value, ngram in zip(made[row].tolist(), expected, strict=True):
            assert names.setdefault(ngram, value) == value
    assert len(set(names.values())) == len(names)  # 32 bits are enough for these few


@given(texts, st.integers(1, 6))
def test_rows_do_not_depend_on_their_block(strings, n):
    made = ngram_hashes(strings, n)
    for row, text in enumerate(strings):
        assert np.array_equal(ngram_hashes([text], n)[0], made[row])
    sliced = ngram_hashes(pa.array(["before", *strings, "after"]).slice(1, len(strings)), n)
    assert np.array_equal(sliced.values, made.values)
    assert np.array_equal(sliced.offsets, made.offsets)


def test_hashes_are_pinned():
    """Sketches are stored: a change of these numbers is a change of format."""
    made = ngram_hashes(["The quick brown fox jumps over", "the QUICK, brown-fox jumps", "short one", "...", ""])
    assert made.lengths.tolist() == [2, 1, 1, 0, 0]
    assert made.values.tolist() == [1895981319, 2382239749, 1895981319, 4224475913]


def test_hashes_of_many_words_fill_32_bits_evenly():
    values = ngram_hashes([" ".join(str(i) for i in range(200_000))], 2)[0]
    for shift in (0, 8, 16, 24):  # each byte: 256 bins of 781 on average, standard deviation 28
        counts = np.bincount((values >> shift) & 255, minlength=256)
        assert np.abs(counts - counts.mean()).max() < 6 * np.sqrt(counts.mean())
    # expected collisions: pairs / 2**32 = 4.7
    assert len(values) - len(np.unique(values)) < 20


def test_ngrams_of_no_words_are_refused():
    with pytest.raises(FarspanError, match="n must be at least 1"):
        ngram_hashes(["a"], 0)


@given(hash_rows, st.integers(1, 20))
def test_sketch_is_the_smallest_distinct_hashes(rows, size):
    made = sketch(Ragged.from_rows(rows, np.uint32), size)
    assert [made[row].tolist() for row in range(len(made))] == [sorted(set(row))[:size] for row in rows]


@given(hash_rows, st.integers(1, 20))
def test_jaccard_is_the_share_of_the_least_of_the_union(rows, size):
    sketches = sketch(Ragged.from_rows(rows, np.uint32), size)
    pairs = [(i, j) for i in range(len(rows)) for j in range(len(rows))]
    one_side, other_side = np.array(pairs).T
    for (i, j), value in zip(pairs, jaccard(sketches, one_side, other_side, size), strict=True):
        one, other = set(rows[i]), set(rows[j])
        union = sorted(one | other)
        if max(len(one), len(other)) >= size:
            union = union[:size]
        expected = len(one & other & set(union)) / len(union) if union else 0
        assert value == np.float32(expected)


def test_jaccard_of_short_equal_texts_is_1():
    ngrams = ngram_hashes(["two words", "Two, words!", "other words", ""])
    assert jaccard(sketch(ngrams), np.array([0, 0, 0, 3]), np.array([1, 2, 3, 3])).tolist() == [1, 0, 0, 0]


def test_jaccard_estimates_within_its_standard_error():
    rng = np.random.default_rng(0)
    for shared in (0.1, 0.5, 0.9):
        size, total = 128, 2000
        errors = []
        for _ in range(100):
            union = rng.choice(2**32, total, replace=False)
            common = int(shared * total)
            middle = common + (total - common) // 2
            rows = [union[:middle], np.concatenate([union[:common], union[middle:]])]
            made = sketch(Ragged.from_rows(rows, np.uint32), size)
            errors.append(jaccard(made, np.array([0]), np.array([1]), size)[0] - shared)
        deviation = np.sqrt(shared * (1 - shared) / size)
        assert abs(np.mean(errors)) < 4 * deviation / 10
        assert np.std(errors) < 1.5 * deviation


@given(hash_rows, st.data())
def test_redundancy_counts_what_an_earlier_part_has(rows, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    edges = [0, *cuts, len(rows)]
    expected = []
    for first, last in itertools.pairwise(edges):
        parts = rows[first:last]
        known = sum(value in set().union(*parts[:i]) for i, part in enumerate(parts) for value in part)
        expected.append((known, sum(map(len, parts))))
    repeated, totals = redundancy(Ragged.from_rows(rows, np.uint32), np.array(edges))
    assert list(zip(repeated.tolist(), totals.tolist(), strict=True)) == expected


def test_redundancy_of_no_sequence():
    repeated, totals = redundancy(Ragged.from_rows([], np.uint32), np.zeros(1, np.int64))
    assert len(repeated) == len(totals) == 0


any_text = st.one_of(st.text(max_size=40), st.text("aé中😀", max_size=200))


@given(any_text, st.lists(st.integers(0, 200)))
def test_offsets_are_lengths_of_what_comes_before(text, characters):
    characters = sorted(min(character, len(text)) for character in characters)
    expected = [len(text[:character].encode()) for character in characters]
    for given_as in (text, text.encode()):
        assert byte_offsets(given_as, np.array(characters, np.int64)).tolist() == expected


@given(any_text, st.sets(st.integers(0, 200)))
def test_characters_before_a_byte(text, characters):
    characters = np.array(sorted(c for c in characters if c < len(text)), np.int64)
    data = text.encode()
    assert character_offsets(data, byte_offsets(text, characters)).tolist() == characters.tolist()
