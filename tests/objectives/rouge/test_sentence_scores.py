"""Scores equal those of the ``rouge_score`` package, and of counters that are added and subtracted one by one."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.storage.ragged import Ragged
from corpora.text.sentences import load_splitter
from objectives.rouge.sentence_scores import cluster_scores, select_greedily, sentence_scores, window_scores
from objectives.rouge.words import Words, split_words, token_words
from tests.objectives.handmade import documents, sentences, starts_of
from tests.objectives.rouge.plain_rouge import TOKENIZER, Plain, against_the_rest, of_clusters

SETTINGS = [(n, counts, single) for n in (1, 2, 3) for counts in ("orig", "uniq", "log") for single in (False, True)]
VOCABULARY = [*"a b c d e f the of and 7 42".split(), "Cats", "cat", "cats", "RUNNING", "runs"]


def words_of(documents: list[list[str]], **options) -> Words:
    return split_words(["".join(sentences) for sentences in documents], starts_of(documents), **options)


def tokens_of(sentences: list[str]) -> list[list[str]]:
    return list(map(TOKENIZER.tokenize, sentences))


def rows(scores: Ragged) -> list[list[float]]:
    return [row.tolist() for row in map(scores.__getitem__, range(len(scores)))]


def random_documents(count: int) -> list[list[str]]:
    """Few words, so that much is equal; empty sentences, sentences of one word, and repeated ones among them."""
    rng = np.random.default_rng(4)
    made = []
    for _ in range(count):
        known = rng.choice(VOCABULARY, rng.integers(1, len(VOCABULARY)), replace=False)
        document = [" ".join(rng.choice(known, rng.integers(0, 7))) + ". " for _ in range(rng.integers(0, 9))]
        made.append(document + document[: rng.integers(0, 3)])
    return made


@pytest.fixture(scope="module")
def leads() -> list[list[str]]:
    """Sentences of real lead sections."""
    return real_documents(150)


def real_documents(count: int) -> list[list[str]]:
    from examples.wikipedia_text import lead_sections

    splitter = load_splitter()
    made = []
    for record, _ in zip(lead_sections(), range(count), strict=False):
        starts = [*splitter.boundaries(record["text"]).tolist(), len(record["text"])]
        made.append([record["text"][a:b] for a, b in pairwise(starts)])
    return made


@given(documents, st.booleans())
def test_scores_are_those_of_the_reference(documents, stem):
    found = sentence_scores(words_of(documents, stem=stem))
    assert found.values.dtype == np.float64
    assert rows(found) == [against_the_rest(d, stem) for d in documents]


@pytest.mark.parametrize("stem", [False, True])
def test_scores_of_many_documents_are_those_of_the_reference(stem, leads):
    """Random documents and real ones, to the last bit."""
    documents = random_documents(400) + leads[:60]
    found = sentence_scores(words_of(documents, stem=stem))
    assert rows(found) == [against_the_rest(d, stem) for d in documents]
    assert np.count_nonzero(found.values) > len(found.values) / 4


@pytest.mark.parametrize(("n", "counts", "single"), SETTINGS)
def test_scores_and_windows_are_those_of_counters(n, counts, single, leads):
    """PEGASUS's definition: n-grams over the borders of a sentence stay in the rest."""
    documents = random_documents(250) + leads[:20]
    words = words_of(documents)
    setting = {"n": n, "counts": counts, "precision": "float32" if single else "float64"}
    found = sentence_scores(words, **setting)
    assert found.values.dtype == np.dtype(setting["precision"])
    sizes = np.arange(len(documents)) % 4 + 1
    windows = window_scores(words, sizes, **setting)
    exact = {"rel": 2e-7 if single else 1e-12, "abs": 1e-12} if counts == "log" else {"rel": 0, "abs": 0}
    for i, document in enumerate(documents):
        plain = Plain(tokens_of(document), n, counts, single)
        assert found[i].tolist() == pytest.approx(plain.windows(1) if document else [], **exact)
        expected = plain.windows(min(sizes[i], len(document))) if document else []
        assert windows[i].tolist() == pytest.approx(expected, **exact)


@pytest.mark.parametrize("ties", ["earlier", "later"])
@pytest.mark.parametrize(("n", "counts", "single"), [s for s in SETTINGS if s[1] != "log"])
def test_greedy_selection_is_that_of_counters(n, counts, single, ties, leads):
    documents = random_documents(120) + leads[:10]
    picks = np.array([(i * 3) % (len(document) + 1) for i, document in enumerate(documents)])
    precision = "float32" if single else "float64"
    order, scores = select_greedily(words_of(documents), picks, n=n, counts=counts, ties=ties, precision=precision)
    assert order.values.dtype == np.int32
    assert scores.values.dtype == np.dtype(precision)
    for i, document in enumerate(documents):
        expected = Plain(tokens_of(document), n, counts, single).greedy(picks[i], ties == "later")
        assert (order[i].tolist(), scores[i].tolist()) == expected


@pytest.mark.parametrize("single", [False, True])
def test_greedy_selection_by_logarithms_takes_a_best_sentence(single):
    """Each choice scores as counters say and none scores better; which of equal ones is taken depends on rounding."""
    documents = random_documents(150)
    precision = "float32" if single else "float64"
    everything = np.full(len(documents), 99)
    order, scores = select_greedily(words_of(documents), everything, counts="log", precision=precision)
    for i, document in enumerate(documents):
        plain = Plain(tokens_of(document), 1, "log", single)
        assert sorted(order[i]) == list(range(len(document)))
        for step, score in enumerate(scores[i].tolist()):
            found = plain.scores_after(order[i][:step].tolist())
            assert score == pytest.approx(max(found.values()), rel=2e-7 if single else 1e-12, abs=1e-12)
            assert score == pytest.approx(found[order[i][step]], rel=2e-7 if single else 1e-12, abs=1e-12)


def test_greedy_selection_of_a_repeated_word():
    """A word that one sentence holds often and the others seldom: its part in their scores changes more than once."""
    documents = [["a " * k + "b. " for k in (9, 1, 4, 1, 2, 2, 7)], ["a a a ", "a a ", "a ", "c ", "a a a a "]]
    for counts in ("orig", "uniq"):
        order, scores = select_greedily(words_of(documents), np.array([7, 5]), counts=counts)
        for i, document in enumerate(documents):
            expected = Plain(tokens_of(document), 1, counts, False).greedy(len(document), False)
            assert (order[i].tolist(), scores[i].tolist()) == expected


def test_golden_scores():
    document = ["The cat sat. ", "The cat ran! ", "Dogs bark."]
    # sentence 0: the, cat are in the rest of 5 words; precision 2/3, recall 2/5, F1 1/2
    assert rows(sentence_scores(words_of([document])))[0] == pytest.approx([0.5, 0.5, 0.0])
    # without `the`: precision 1/2, recall 1/4
    assert rows(sentence_scores(words_of([document], stopwords=["the"])))[0] == pytest.approx([1 / 3, 1 / 3, 0.0])
    # as often as both have it: 2 of 3 in the sentence, 2 of 2 in the rest; once: 1 of 1 and 1 of 1
    twice = words_of([["a a a ", "a a"]])
    assert rows(sentence_scores(twice))[0] == pytest.approx([0.8, 0.8])
    assert rows(sentence_scores(twice, counts="uniq"))[0] == [1.0, 1.0]
    # log 3 is shared; the sides have log 4 and log 3
    shared, most = np.log(3), np.log(4)
    expected = 2 * (shared / most) / (shared / most + 1)
    assert rows(sentence_scores(twice, counts="log"))[0] == pytest.approx([expected, expected], abs=1e-12)
    # all pairs of words: "b c" over the border is of the document, and stays in the rest of either sentence
    pairs = words_of([["b c b ", "c b c"]])
    # shared b c, c b; the sentence has 2 pairs; left are 2 and b c: precision 2/2, recall 2/3
    assert rows(sentence_scores(pairs, n=2))[0] == pytest.approx([0.8, 0.8])


def test_golden_selection():
    """The second choice shares no word, but leaves both words of the first to share."""
    words = words_of([["a b. ", "a x. ", "b y. ", "z."]])
    order, scores = select_greedily(words, np.array([4]))
    # {a b}: 2 shared of 2, and of 5 left; {a b z}: 2 of 3, and of 4; with {a x} or with {b y}: 1 of 5, and of 2
    assert order[0].tolist() == [0, 3, 1, 2]
    assert scores[0].tolist() == pytest.approx([4 / 7, 4 / 7, 2 / 7, 0])
    assert select_greedily(words, np.array([3]), ties="later")[0][0].tolist() == [0, 3, 2]
    same = words_of([["same. "] * 5])
    assert select_greedily(same, np.array([3]))[0][0].tolist() == [0, 1, 2]
    assert select_greedily(same, np.array([3]), ties="later")[0][0].tolist() == [4, 3, 2]


def test_single_precision_makes_ties_that_double_precision_does_not():
    """Scores of one value by different divisions; so the later sentence wins where it does not in double precision."""
    differs = 0
    for document in random_documents(400):
        single, double = (
            sentence_scores(words_of([document]), precision=precision)[0] for precision in ("float32", "float64")
        )
        assert single == pytest.approx(double, rel=2e-7)
        differs += len(np.unique(single)) < len(np.unique(double))
    assert differs


@given(st.lists(st.lists(sentences, max_size=4), max_size=3), st.booleans())
def test_cluster_scores_are_those_of_the_reference(clusters, stem):
    check_clusters(clusters, stem)


@pytest.mark.parametrize("stem", [False, True])
def test_cluster_scores_of_many_clusters_are_those_of_the_reference(stem):
    documents = random_documents(600)
    check_clusters([documents[i : i + 1 + i % 4] for i in range(0, 600, 3)], stem)


def test_cluster_scores_of_real_documents(leads):
    """Documents of more than 64 and of more than 128 words among them, so that subsequences cross machine words."""
    clusters = [leads[i : i + 4] for i in range(0, 40, 4)]
    assert max(len(TOKENIZER.tokenize("".join(d))) for c in clusters for d in c) > 128
    check_clusters(clusters, True)


def check_clusters(clusters: list[list[list[str]]], stem: bool) -> None:
    texts = [[sentence for document in documents for sentence in document] for documents in clusters]
    starts = [np.cumsum([0, *map(len, documents)])[:-1] for documents in clusters]
    found = cluster_scores(words_of(texts, stem=stem), Ragged.from_rows(starts, np.int32))
    for i, cluster in enumerate(clusters):
        # a word does not go on behind its sentence, so the strings get a space there
        expected = of_clusters([[sentence + " " for sentence in document] for document in cluster], stem)
        assert found[i].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_golden_cluster():
    """`a b c` has all of it in order in the first other document, and in the second one pair turned round."""
    cluster = [["a b c "], ["x a b ", "c y "], ["b a "]]
    words, starts = words_of([[s for d in cluster for s in d]]), Ragged.from_rows([[0, 1, 3]], np.int32)
    # R1: 3 of 3 and 5; R2: 2 of 2 and 4 (the pair over the border counts); RL: 3 of 3 and 5
    # R1: 2 of 3 and 2; R2: 0; RL: 1 of 3 and 2
    expected = (0.75 + 2 / 3 + 0.75) / 3 + (0.8 + 0.0 + 0.4) / 3
    assert cluster_scores(words, starts)[0][0] == pytest.approx(expected)


def test_one_document_shares_nothing_with_others():
    assert rows(cluster_scores(words_of([["a b. ", "a b."]]), Ragged.from_rows([[0]], np.int32))) == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], []),
        ([""], [0]),
        (["one"], [0]),
        (["the of ", "of the"], [0, 0]),  # stopwords only
        (["... ", "!?"], [0, 0]),
        (["", "a b ", "", "a b"], [0, 1, 0, 1]),
        (["same words. "] * 3, [2 / 3] * 3),
        (["12 34. ", "34 56."], [0.5, 0.5]),
        (["\u212aelvin İ ", "kelvin i"], [1, 1]),
    ],
)
def test_odd_documents(document, expected):
    words = words_of([document], stopwords=["the", "of"])
    assert rows(sentence_scores(words)) == [pytest.approx(expected)]
    order, _ = select_greedily(words, np.array([9]), ties="later")
    assert sorted(order[0]) == list(range(len(document)))
    assert rows(window_scores(words, np.array([9]))) == [[0.0] if document else []]
    assert rows(cluster_scores(words, Ragged.from_rows([[0, 0, len(document)]], np.int32))) == [[0.0] * len(document)]


def test_no_texts_at_all():
    words = words_of([])
    assert rows(sentence_scores(words, n=2)) == rows(window_scores(words, np.empty(0))) == []
    assert rows(cluster_scores(words, Ragged.from_rows([], np.int32))) == []
    assert rows(select_greedily(words, np.empty(0, np.int64))[0]) == []


def test_a_block_scores_as_its_texts_alone():
    blocks = [["one two. ", "two three."], [], ["只有中文。", "没有单词。"], [""], ["one"], ["one. ", "one two"]]
    for n in (1, 2):
        together = sentence_scores(words_of(blocks), n=n)
        for row, document in enumerate(blocks):
            assert together[row].tolist() == sentence_scores(words_of([document]), n=n).values.tolist()
    assert sentence_scores(words_of(blocks))[2].tolist() == [0.0, 0.0]
    assert sentence_scores(words_of([["只有中文。", "没有文。"]], words="unicode")).values.min() > 0


def test_sets_of_ids():
    """BART-LS's score: F1 of the sets of token ids of a sentence and of the rest."""
    words = token_words(Ragged.from_rows([[5, 5, 9, 9, 7, 5, 3]], np.uint16), Ragged.from_rows([[0, 2, 4]], np.int32))
    scores = sentence_scores(words, counts="uniq")[0].tolist()
    # {5} and {9, 7, 5, 3}; {9} and {5, 7, 3}; {7, 5, 3} and {5, 9}
    assert scores == pytest.approx([2 / 5, 0, 2 / 5])


def test_many_sentences_of_a_word():
    """Neither time nor memory grows with the square; half of the sentences are the same word."""
    words = token_words(
        Ragged.from_rows([np.arange(200_000) * (np.arange(200_000) % 2)], np.int32),
        Ragged.from_rows([np.arange(200_000)], np.int32),
    )
    for setting in ({}, {"n": 2}, {"counts": "log"}):
        assert len(sentence_scores(words, **setting).values) == 200_000
    assert np.count_nonzero(cluster_scores(words, Ragged.from_rows([[0, 100_000]], np.int32)).values) == 100_000
    order, _ = select_greedily(words, np.array([3]))
    assert order[0].tolist() == [0, 2, 4]
