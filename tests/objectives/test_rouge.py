"""Scores equal those of the ``rouge_score`` package, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenize import tokenize

from corpora.ragged import Ragged
from objectives.rouge import sentence_scores
from objectives.words import split_words

SCORER = RougeScorer(["rouge1"], use_stemmer=False)

# letters that change in lowercasing, among them the two that become ASCII, and bytes that resemble theirs in UTF-8
CHARACTERS = "aAbzZ059 .-_\n\t'éÉßΣκ\u0130\u0131\u212a\u212b\u0129\u01b0\u2102\U0001f600\u4e2d\x00\x01\x7f\xff"
sentences = st.lists(
    st.one_of(
        st.text(CHARACTERS, max_size=12),
        st.text(max_size=8),
        st.lists(st.sampled_from("a b the The cat 1 \u212aat i\u0130a".split()), max_size=8).map(" ".join),
    ),
    max_size=6,
)
documents = st.lists(sentences, min_size=0, max_size=5)


def starts_of(documents):
    ends = [np.cumsum([0, *map(len, sentences)]) for sentences in documents]
    return Ragged.from_rows([row[:-1] for row in ends], np.int64)


def oracle(sentences):
    """Each sentence against the others, joined by spaces as PEGASUS does it."""
    rest = [" ".join(sentences[:i] + sentences[i + 1 :]) for i in range(len(sentences))]
    return [SCORER.score(b, a)["rouge1"].fmeasure for a, b in zip(sentences, rest, strict=True)]


def scores(documents, **options):
    texts = ["".join(sentences) for sentences in documents]
    return sentence_scores(split_words(texts, starts_of(documents), **options))


@given(documents)
def test_scores_are_those_of_the_reference(documents):
    found = scores(documents)
    assert found.values.dtype == np.float64
    assert [row.tolist() for row in map(found.__getitem__, range(len(found)))] == [oracle(d) for d in documents]


@given(documents, st.sampled_from([(), ("the",), ("a", "cat", "k"), ("don't", "1")]))
def test_words_are_those_of_the_reference(documents, stopwords):
    """Words are equal exactly where the reference's tokens are, and numbered by first occurrence."""
    words = split_words(["".join(d) for d in documents], starts_of(documents), stopwords)
    left_out = {token for word in stopwords for token in tokenize(word, None)}
    assert len(words.sentences) == len(words.distinct) + 1 == len(documents) + 1
    for i, sentences in enumerate(documents):
        numbers: dict[str, int] = {}
        expected = [
            [numbers.setdefault(token, len(numbers)) for token in tokenize(s, None) if token not in left_out]
            for s in sentences
        ]
        rows = range(words.sentences[i], words.sentences[i + 1])
        assert [words.ids[row].tolist() for row in rows] == expected
        assert words.distinct[i] == len(numbers)


def test_golden_scores():
    document = ["The cat sat. ", "The cat ran! ", "Dogs bark."]
    # sentence 0: the, cat are in the rest of 5 words; precision 2/3, recall 2/5, F1 1/2
    assert scores([document])[0].tolist() == pytest.approx([0.5, 0.5, 0.0])
    # without `the`: precision 1/2, recall 1/4
    assert scores([document], stopwords=["the"])[0].tolist() == pytest.approx([1 / 3, 1 / 3, 0.0])
    # a word counts as often as both have it: 2 of 3 in the sentence, 2 of 2 in the rest
    assert scores([["a a a ", "a a"]])[0].tolist() == pytest.approx([0.8, 0.8])


def test_a_block_scores_as_its_texts_alone():
    blocks = [["one two. ", "two three."], [], ["只有中文。", "没有单词。"], [""], ["one"], ["one. ", "one two"]]
    together = scores(blocks)
    for row, document in enumerate(blocks):
        assert together[row].tolist() == scores([document])[0].tolist()
    assert together[2].tolist() == [0.0, 0.0]


def test_rows_may_lie_in_a_larger_array():
    whole = Ragged(np.array([9, 9, 0, 4, 0, 7]), np.array([2, 4, 6]))
    texts = ["one one two", "two two three"]
    alone = Ragged.from_rows([[0, 4], [0, 7]], np.int64)
    assert sentence_scores(split_words(texts, whole)).values.tolist() == pytest.approx(
        sentence_scores(split_words(texts, alone)).values.tolist()
    )


def test_a_thousand_words_with_equal_hash_places_stay_apart():
    """Every word once, then again: all are told apart in a crowded table."""
    words = [f"w{number:x}" for number in range(5000)]
    split = split_words([" ".join(words + words)], Ragged.from_rows([[0]], np.int64))
    assert split.ids[0].tolist() == list(range(5000)) * 2
