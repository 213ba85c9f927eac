"""Words are those of ``rouge_score``'s tokenizer; Unicode words are the same on ASCII and sensible elsewhere."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.tokenizers import DefaultTokenizer

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from objectives.rouge.words import (
    JOINER,
    LETTER,
    MARK,
    SEPARATOR,
    SINGLE,
    Words,
    ascii_letters,
    split_words,
    token_words,
    unicode_kinds,
)
from tests.objectives.texts import documents, starts_of

TOKENIZERS = {stem: DefaultTokenizer(use_stemmer=stem) for stem in (False, True)}


def split(documents: list[list[str]], **options) -> Words:
    return split_words(["".join(sentences) for sentences in documents], starts_of(documents), **options)


def numbered(documents: list[list[list]]) -> list[list[list[int]]]:
    """Any words as numbers in the order of first occurrence in their document."""
    out = []
    for sentences in documents:
        numbers: dict = {}
        out.append([[numbers.setdefault(word, len(numbers)) for word in words] for words in sentences])
    return out


def assert_words(words: Words, expected: list[list[list]]) -> None:
    expected = numbered(expected)
    assert words.ids.values.dtype == np.int32
    assert np.diff(words.sentences).tolist() == [len(sentences) for sentences in expected]
    rows = iter(range(len(words.ids)))
    assert [[words.ids[next(rows)].tolist() for _ in sentences] for sentences in expected] == expected
    assert words.distinct.tolist() == [len({w for s in sentences for w in s}) for sentences in expected]


@given(documents, st.sampled_from([(), ("the",), ("a", "cat", "k"), ("don't", "1")]), st.booleans())
def test_words_are_those_of_the_reference(documents, stopwords, stem):
    """Words are equal exactly where the reference's tokens are, and numbered by first occurrence."""
    plain = TOKENIZERS[False].tokenize
    left_out = {token for word in stopwords for token in plain(word)}
    expected = [
        [[TOKENIZERS[stem].tokenize(word)[0] for word in plain(s) if word not in left_out] for s in sentences]
        for sentences in documents
    ]
    assert_words(split(documents, stopwords=stopwords, stem=stem), expected)


def test_stems_are_those_of_the_reference():
    """Also where the stem of one text's word is another text's word, and where a word was stemmed before."""
    documents = [["Running runs. ", "He ran, ran skies."], ["run sky flies dying 1990s", "caresses ponies"]] * 2
    expected = [[TOKENIZERS[True].tokenize(s) for s in sentences] for sentences in documents]
    assert_words(split(documents, stem=True), expected)
    assert expected[0][0] == ["run", "run"]


def test_two_characters_beyond_ascii_have_ascii_letters_in_lower_case():
    """The facts of this Python's Unicode that ``_encode`` builds on."""
    others = [chr(code) for code in range(128, 0x110000) if not 0xD800 <= code < 0xE000]
    assert [c for c in others if not set(c.lower()).isdisjoint("abcdefghijklmnopqrstuvwxyz0123456789")] == [
        "İ",
        "\u212a",
    ]
    assert [c for c in others if len(c.lower()) > 1] == ["İ"]
    # starts behind either count characters of the text as it was
    for words in ("rouge", "unicode"):
        assert_words(split([["İ ab İ", "\u212a ab", "İ cd"], ["İİ", "x"]], words=words), {
            "rouge": [[["i", "ab", "i"], ["k", "ab"], ["i", "cd"]], [["i", "i"], ["x"]]],
            "unicode": [[["i̇", "ab", "i̇"], ["k", "ab"], ["i̇", "cd"]], [["i̇i̇"], ["x"]]],
        }[words])  # fmt: skip


@given(documents)
def test_unicode_words_of_ascii_are_the_reference_s(documents):
    ascii_only = [[s.encode("ascii", "replace").decode() for s in sentences] for sentences in documents]
    expected = [[TOKENIZERS[False].tokenize(s) for s in sentences] for sentences in ascii_only]
    assert_words(split(ascii_only, words="unicode"), expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("كِتَابٌ جديد، كِتَابٌ.", "كِتَابٌ جديد كِتَابٌ"),  # vowel marks do not split
        ("می\u200cشود می\u200cشود\u200f.", "می\u200cشود می\u200cشود"),  # joiner inside; direction mark at the edge
        ("שָׁלוֹם, עולם!", "שָׁלוֹם עולם"),
        ("हिन्दी में किताबें", "हिन्दी में किताबें"),
        ("Ελλάδα — ΕΛΛΆΔΑ", "ελλάδα ελλάδα"),
        ("Привет, МИР! мир", "привет мир мир"),
        ("我爱北京。北京", "我 爱 北 京 北 京"),
        ("東京タワーへ行く123円", "東 京 タワー へ 行 く 123 円"),
        ("ภาษาไทย ๑๒", "ภ า ษ า ไ ท ย ๑๒"),
        ("ที่นี่", "ที่ นี่"),  # marks stay with their letter
        ("한국어 문장", "한국어 문장"),
        ("𝔘𝔫𝔦 😀👩‍👩‍👧 naïve café", "𝔘𝔫𝔦 naïve café"),  # beyond 16 bits; emoji are no words
        ("cafe\u0301 CAFE\u0301", "cafe\u0301 cafe\u0301"),
        ("\u0301 \u200d \u200f…", ""),  # marks and joiners alone
        ("don't stop_it 3.14", "don t stop it 3 14"),
    ],
)
def test_unicode_words(text, words):
    assert_words(split([[text], [text, text]], words="unicode"), [[words.split()], [words.split(), words.split()]])


def test_stopwords_and_stems_of_other_scripts():
    words = split([["и мир и война"], ["и"]], words="unicode", stopwords=["и"])
    assert_words(words, [[["мир", "война"]], [[]]])
    assert_words(split([["Running ЧИТАЮ"]], words="unicode", stem=True), [[["run", "читаю"]]])


@pytest.mark.parametrize("stem", [False, True])
def test_texts_without_words(stem):
    blocks = [[], [""], ["...", "!?"], ["the", "the of"], ["12 12"]]
    assert_words(split(blocks, stopwords=["the", "of"], stem=stem), [[], [[]], [[], []], [[], []], [["12", "12"]]])
    assert_words(split([], stem=stem), [])
    assert_words(split([[]], stem=stem), [[]])


def test_many_different_words_stay_apart():
    """Every word once, then again: all are told apart in a crowded table."""
    words = [f"w{number:x}" for number in range(5000)]
    assert split([[" ".join(words + words)]]).ids[0].tolist() == list(range(5000)) * 2


def test_starts_may_lie_in_a_larger_array():
    whole = Ragged(np.array([9, 9, 0, 4, 0, 7]), np.array([2, 4, 6]))
    texts = ["one one two", "two two three"]
    alone = Ragged.from_rows([[0, 4], [0, 7]], np.int64)
    assert split_words(texts, whole).ids.values.tolist() == split_words(texts, alone).ids.values.tolist()


def test_an_unknown_kind_of_words_is_refused():
    with pytest.raises(FarspanError, match="words is 'chars'; give one of rouge, unicode"):
        split([["a"]], words="chars")


@given(st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(0, 12))), max_size=5))
def test_token_words_are_the_tokens_from_the_first_start_on(rows):
    tokens = Ragged.from_rows([row for row, _ in rows], np.uint16)
    starts = [sorted({min(start, len(row)) for start in starts}) for row, starts in rows]
    expected = [
        [row[a:b] for a, b in pairwise([*begins, len(row)])] for (row, _), begins in zip(rows, starts, strict=True)
    ]
    assert_words(token_words(tokens, Ragged.from_rows(starts, np.int32)), expected)


@pytest.mark.parametrize("options", [{}, {"words": "unicode"}, {"stem": True}])
def test_a_million_sentences_of_a_word(options):
    starts = Ragged.from_rows([np.arange(1_000_000) * 3], np.int64)
    words = split_words(["ab " * 1_000_000], starts, **options)
    assert len(words.ids) == 1_000_000
    assert words.ids.values.sum() == 0
    assert words.distinct.tolist() == [1]


def test_the_kinds_of_characters_without_spaces():
    """Every ideograph and kana of Hiragana is a word; no letter of a script with spaces is."""
    prefixes = ("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA LETTER", "HENTAIGANA LETTER")
    letters = [chr(code) for code in range(0x110000) if unicodedata.name(chr(code), "").startswith(prefixes)]
    found = split([["".join(letters)]], words="unicode")
    assert len(found.ids.values) == len(letters) > 90_000
    assert split([["aбγकगعא가ア" * 3]], words="unicode").ids.values.tolist() == [0]


def test_bytes_are_lower_case_letters_digits_or_separators():
    table = ascii_letters()
    for byte in range(256):
        expected = bytes([byte]).lower()[0] if byte < 128 and chr(byte).isalnum() else 0
        assert table[byte] == expected


@pytest.mark.parametrize(
    ("kind", "characters"),
    [
        (LETTER, "aÉß9½Ⅷ한Жक"),
        (MARK, "\u0301\u0651\u0e31"),
        (JOINER, "\u200c\u200d\u200f\u00ad"),
        (SINGLE, "猫あのไກ々"),
        (SEPARATOR, " .-_\u3000😀\u2028\u00a0、"),
    ],
)
def test_kinds_of_characters(kind, characters):
    assert {character: int(unicode_kinds()[ord(character)]) for character in characters} == dict.fromkeys(
        characters, kind
    )


def test_digits_of_scripts_without_spaces_form_numbers():
    """Thai and Lao digits are decimal, so a number is one word; the zero of Han is not."""
    kinds = unicode_kinds()
    assert {int(kinds[ord(digit)]) for digit in "๐๙໐໙០៩"} == {LETTER}
    assert kinds[ord("〇")] == SINGLE
