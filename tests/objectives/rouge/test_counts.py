"""Words as ``rouge_score``'s tokenizer has them, n-grams, longest common subsequences, and scores of pairs."""

import string
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

from corpora.storage.ragged import Ragged
from objectives.rouge import prediction_scores as module
from objectives.rouge.numbering import mix_letter, number_words
from objectives.rouge.prediction_scores import MEASURES, pair_scores
from objectives.rouge.sequences import lcs_lengths, union_lcs
from objectives.rouge.words import Words, split_words, token_words
from tests.objectives.handmade import documents, sentences, starts_of

words = st.lists(st.sampled_from([b"a", b"b", b"ab", b"ba", b"abababab", b"ababababa", b"bababababa"]), max_size=12)
texts = st.lists(words, max_size=4)


def by_dictionary(stopwords: list[bytes], texts: list[list[bytes]]) -> tuple[list[list[int]], list[int]]:
    ids, distinct = [], []
    for text in texts:
        numbers = dict.fromkeys(stopwords, -1)
        for word in text:
            numbers.setdefault(word, len(numbers) - len(set(stopwords)))
        ids.append([numbers[word] for word in text])
        distinct.append(len(numbers) - len(set(stopwords)))
    return ids, distinct


def key(word: bytes) -> int:
    value = np.uint64(0)
    for letter in word:
        value = np.uint64(mix_letter(value, letter))
    return int(value)


@given(words, texts, st.sampled_from(["hashed", "all equal", "exact"]))
def test_words_are_numbered_by_first_occurrence(stopwords, texts, keys):
    """Letters decide where keys are not exact, however many words share one."""
    flat = [*stopwords, *(word for text in texts for word in text)]
    ends = np.cumsum([0, *map(len, flat)])
    edges = np.cumsum([len(stopwords), *map(len, texts)])
    values = {
        "hashed": [key(word) for word in flat],
        "all equal": [0] * len(flat),
        "exact": [int.from_bytes(word[:7]) + (len(word) << 56) for word in flat],
    }[keys]
    letters, exact = np.frombuffer(b"".join(flat), np.uint8).copy(), 7 if keys == "exact" else 0
    ids, distinct = number_words(letters, ends[:-1], ends[1:], np.array(values, np.uint64), exact, edges)
    expected, counts = by_dictionary(stopwords, texts)
    assert [ids[a - edges[0] : b - edges[0]].tolist() for a, b in pairwise(edges)] == expected
    assert distinct.tolist() == counts


def table(one, other):
    row = [0] * (len(other) + 1)
    for a in one:
        before, row = row, [0]
        for j, b in enumerate(other):
            row.append(before[j] + 1 if a == b else max(row[j], before[j + 1]))
    return row[-1]


def lengths(sequence, others):
    ids = np.array([5, *(element for other in others for element in other)], np.int32)
    bounds = np.cumsum([1, *map(len, others)])  # the first element is of none
    return lcs_lengths(np.array(sequence, np.int32), ids, bounds, np.ones(len(others), bool), 6).tolist()


# few elements, so that long runs match; up to four machine words of 64 places
sequences = st.integers(0, 260).flatmap(lambda n: st.lists(st.integers(0, 5), min_size=n, max_size=n))


@given(sequences, st.lists(st.lists(st.integers(0, 5), max_size=90), max_size=4))
def test_lengths_are_those_of_the_table(sequence, others):
    assert lengths(sequence, others) == [table(sequence, other) for other in others]


def test_carries_go_through_several_machine_words():
    """A match in the first 64 places decides what an element does in the last."""
    rng = np.random.default_rng(0)
    for size in (63, 64, 65, 128, 193):
        sequence = rng.integers(0, 2, size).tolist()
        others = [sequence, sequence[::-1], [1] * size, [0, 1] * size, rng.integers(0, 6, 300).tolist(), []]
        assert lengths(sequence, others) == [table(sequence, other) for other in others]
    others = [[1], [1, 1], [2, 1], [1, 2, 1], [1] * 130, [2] * 70 + [1]]
    assert lengths([1] * 64 + [2] * 64 + [1] * 64, others) == [1, 2, 2, 3, 128, 65]


def plain_union(sequence, others):
    """The positions that ``rouge_score`` finds with its table."""
    from rouge_score.rouge_scorer import lcs_ind

    return set().union(*(lcs_ind(sequence, other) for other in others))


@given(sequences, st.lists(st.lists(st.integers(0, 5), max_size=90), max_size=3))
def test_the_union_is_that_of_the_reference(sequence, others):
    ids = np.array([5, *(element for other in others for element in other)], np.int32)
    marks = np.zeros(6, np.uint64)
    taken = union_lcs(np.array(sequence, np.int32), ids, np.cumsum([1, *map(len, others)]), marks)
    assert set(np.flatnonzero(taken).tolist()) == plain_union(sequence, others)
    assert not marks.any()


VOCABULARY = [
    *"a b the The cat cats running runs relational generally nationally happy Happier ended 42".split(),
    *("\u212aat", "i\u0130a", "é", "générale", "naïve", "\u4e2d\u6587", "\U0001f600", "state-of-the-art", "x_y"),
]
GAPS = [" "] * 8 + ["  ", ". ", ", ", "\n", "\n\n", " . ", "\t", "-"]


def random_texts(sizes: list[int], seed: int) -> list[str]:
    """Texts of few different words, in lines, of ``sizes`` words each."""
    rng = np.random.default_rng(seed)
    return ["".join(w + g for w, g in zip(rng.choice(VOCABULARY, n), rng.choice(GAPS, n), strict=True)) for n in sizes]


def assert_equal(predictions: list[str], references: list[list[str]], stem: bool) -> dict[str, np.ndarray]:
    found = pair_scores(predictions, references, stem=stem)
    scorer = RougeScorer(list(MEASURES), use_stemmer=stem)
    expected = [scorer.score(one, text) for text, own in zip(predictions, references, strict=True) for one in own]
    for name in MEASURES:
        assert found[name].tolist() == [list(map(float, score[name])) for score in expected], name
    return found


@pytest.mark.parametrize("stem", [False, True])
def test_a_thousand_pairs_are_those_of_the_reference(stem):
    """Empty texts, one word, repeated words, other scripts, up to 130 words; one to three references."""
    rng = np.random.default_rng(1)
    sizes = rng.choice([0, 1, 2, 5, 12, 30, 130], 540, p=[0.1, 0.1, 0.15, 0.3, 0.3, 0.04, 0.01])
    predictions = random_texts(sizes.tolist(), 2)
    counts = rng.integers(1, 4, len(predictions))
    each = random_texts(rng.choice([0, 1, 3, 10, 25, 70], counts.sum(), p=[0.1, 0.1, 0.3, 0.4, 0.09, 0.01]).tolist(), 3)
    references = [list(part) for part in np.split(np.array(each, object), np.cumsum(counts)[:-1])]
    assert counts.sum() > 1_000
    found = assert_equal(predictions, references, stem)
    assert all(np.count_nonzero(scores[:, 2]) > 120 for scores in found.values())
    assert np.count_nonzero(found["rougeLsum"] != found["rougeL"]) > 100


@settings(max_examples=50)
@given(st.booleans(), st.lists(st.tuples(sentences, st.lists(sentences, max_size=3)), max_size=4))
def test_any_text_is_scored_as_by_the_reference(stem, drawn):
    joined = [("\n".join(text), ["\n".join(one) for one in own]) for text, own in drawn]
    assert_equal([text for text, _ in joined], [own for _, own in joined], stem)


@pytest.mark.parametrize("words", [63, 64, 65, 200])
def test_long_lines_take_several_machine_words(words):
    """Lines of few different words, so that there are many longest subsequences and the choice between them shows."""
    rng = np.random.default_rng(words)
    lines = [" ".join(rng.choice(["a", "b", "c"], words + step)) for step in (0, 1, -1, 0)]
    assert_equal(["\n".join(lines[:2])], [["\n".join(lines[2:]), lines[3]]], False)


def test_a_block_has_no_effect(monkeypatch):
    predictions, references = random_texts([5] * 9, 1), [random_texts([7] * (n % 3), n) for n in range(9)]
    whole = pair_scores(predictions, references)
    monkeypatch.setattr(module, "_BLOCK", 60)
    assert len(list(module._blocks(predictions, references))) > 3
    for name, scores in pair_scores(predictions, references).items():
        assert scores.tolist() == whole[name].tolist()


def test_no_pair_has_no_score():
    assert [scores.shape for scores in pair_scores([], []).values()] == [(0, 3)] * 4
    assert [scores.shape for scores in pair_scores(["a"], [[]]).values()] == [(0, 3)] * 4


def test_a_lone_surrogate_separates_words_and_ngrams_may_be_longer():
    assert pair_scores(["a\ud800b"], [["a b"]], measures=["rouge1"])["rouge1"].tolist() == [[1, 1, 1]]
    assert pair_scores(["a b c d"], [["x a b c d"]], measures=["rouge4"])["rouge4"].tolist() == [[1, 0.5, 2 / 3]]


@pytest.mark.slow
@pytest.mark.parametrize("stem", [False, True])
def test_real_texts_are_scored_as_by_the_reference(stem):
    """A thousand lead sections in lines, each against its own second half and against another article."""
    from examples.wikipedia_text import lead_sections

    leads = [record["text"].replace(". ", ".\n") for record, _ in zip(lead_sections(), range(1_001), strict=False)]
    references = [[one[len(one) // 2 :], other] for one, other in pairwise(leads)]
    found = assert_equal(leads[:-1], references, stem)
    assert np.count_nonzero(found["rougeLsum"] != found["rougeL"]) > 500


TOKENIZERS = {stem: DefaultTokenizer(use_stemmer=stem) for stem in (False, True)}


def split(documents: list[list[str]], **options) -> Words:
    return split_words(["".join(sentences) for sentences in documents], starts_of(documents), **options)


def numbered(documents: list[list[list]]) -> list[list[list[int]]]:
    """Any words as numbers in the order of first occurrence in their document."""
    out = []
    for document in documents:
        numbers: dict = {}
        out.append([[numbers.setdefault(word, len(numbers)) for word in words] for words in document])
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
    letters = string.ascii_lowercase + string.digits
    assert [c for c in others if not set(c.lower()).isdisjoint(letters)] == ["İ", "\u212a"]
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
        ("Ж½Ⅷ\u3000ไ猫々、ໄກ\u2028ab\u00adcd", "ж½ⅷ ไ 猫 々 ໄ ກ ab\u00adcd"),
        ("๐๙ ໐໙ ៩៩ 〇〇", "๐๙ ໐໙ ៩៩ 〇 〇"),  # digits are decimal, and form numbers; the zero of Han is not
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


@given(st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(0, 12))), max_size=5))
def test_token_words_are_the_tokens_from_the_first_start_on(rows):
    tokens = Ragged.from_rows([row for row, _ in rows], np.uint16)
    starts = [sorted({min(start, len(row)) for start in starts}) for row, starts in rows]
    edges = [[*begins, len(row)] for (row, _), begins in zip(rows, starts, strict=True)]
    expected = [[row[a:b] for a, b in pairwise(cuts)] for (row, _), cuts in zip(rows, edges, strict=True)]
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
