"""Metrics of answers, flavours of ROUGE, their intervals, copies from the source, and metrics by name."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from corpora.errors import FarspanError
from objectives.metrics import bootstrap, flavours
from objectives.metrics.bootstrap import resample_means
from objectives.metrics.flavours import FLAVOURS, SCROLLS, list_metrics
from objectives.metrics.metrics import (
    AnswerMetric,
    compute_copied_shares,
    exact_match,
    load_metric,
    normalize_answer,
    option_texts,
    token_f1,
)
from tests.objectives.rouge.test_counts import random_texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat, a dog!", "cat dog"),
        ("U.S.A.", "usa"),
        ("An apple\tand\nthe pear", "apple and pear"),
        ("theatre another", "theatre another"),
        ("l’été – «oui»", "l’été – «oui»"),  # punctuation of ASCII only
        ("the", ""),
    ],
)
def test_normalisation(text, expected):
    assert normalize_answer(text) == expected


@pytest.mark.parametrize(
    ("prediction", "reference", "f1", "match"),
    [
        ("The cat", "a cat.", 1, 1),
        ("cat cat dog", "cat bird", 2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2), 0),
        ("cat cat", "cat cat cat", 0.8, 0),
        ("dog", "cat", 0, 0),
        ("the", "a!", 0, 1),  # both empty: no common token, and yet equal
        ("", "cat", 0, 0),
    ],
)
def test_f1_and_exact_match(prediction, reference, f1, match):
    assert token_f1(prediction, reference) == pytest.approx(f1, rel=1e-15)
    assert exact_match(prediction, reference) == match


@pytest.mark.parametrize(
    ("prediction", "references", "whole", "listed", "part", "match"),
    [
        ("Y, x.", ["x", "y"], 100, 100, 100, 0),
        ("y", ["x", "y"], 50, 0, 100, 100),
        ("x y z, as I said", ["x", "y"], 100, 0, 100, 0),  # a substring rewards rambling
        ("x, x, y", ["x", "y"], 100, 0, 100, 0),
        ("none", ["17", "42"], 0, 0, 0, 0),
        ("Rome, Italy", ["rome, italy"], 100, 100, 100, 100),
    ],
)
def test_substrings_and_exact_lists(prediction, references, whole, listed, part, match):
    scores = {**load_metric("all").scores([prediction], [references])}
    scores |= load_metric("part").scores([prediction], [references])
    assert {key: values.tolist() for key, values in scores.items()} == {
        "all": [whole],
        "all_exact": [listed],
        "part": [part],
        "part_exact": [match],
    }


def test_exact_match_of_the_nearest_option():
    metric = AnswerMetric("quality_nearest", "nearest_exact_match")
    options = [["a red house", "a green house"]] * 3
    references = [["a red house"], ["a green house"], ["a red house"]]
    found = metric.scores(["house, it is", "the green one", "blue"], references, options)
    assert found["nearest_exact_match"].tolist() == [100, 100, 0]  # the first of equal ones, and none without a token
    for lacking in (None, [["a"], [], ["b"]]):
        with pytest.raises(FarspanError, match="metric quality_nearest needs questions with options"):
            metric.scores(["a"] * 3, references, lacking)


def test_the_option_with_the_tokens_of_a_target_is_its_reference():
    """A tokenizer that loses a letter would otherwise make the right option wrong."""
    decode = lambda ids: "".join("abc"[i] for i in ids)  # noqa: E731
    assert option_texts([[0], [1, 2], []], [[1, 2]], ["b\u00e9"], decode) == ["a", "b\u00e9", ""]
    assert option_texts(None, [[1]], ["b"], decode) == []


def test_equal_seeds_draw_equal_examples(monkeypatch):
    scores = np.random.default_rng(0).normal(size=(50, 2))
    means = resample_means(scores, 300, seed=4)
    assert means.shape == (300, 2)
    assert np.array_equal(means, resample_means(scores, 300, seed=4))
    assert not np.array_equal(means, resample_means(scores, 300, seed=5))
    monkeypatch.setattr(bootstrap, "_ELEMENTS", 250)
    assert np.array_equal(means, resample_means(scores, 300, seed=4))


def test_a_constant_difference_has_no_width():
    """Both systems are resampled by the same examples, so what varies from example to example cancels."""
    scores = np.random.default_rng(1).normal(size=80)
    one, other = resample_means(scores), resample_means(scores + 2)
    assert np.allclose(other - one, 2, rtol=0, atol=1e-12)
    assert np.ptp(one) > 0.3


def test_the_spread_is_the_standard_error():
    scores = np.random.default_rng(2).normal(size=400)
    means = resample_means(scores, 4_000)
    assert np.isclose(means.mean(), scores.mean(), atol=0.005)
    assert np.isclose(means.std(), scores.std() / 20, rtol=0.05)


def test_every_example_is_drawn_as_often():
    drawn = resample_means(np.eye(7), 5_000).mean(axis=0)
    assert np.allclose(drawn, 1 / 7, atol=0.004)
    draws = resample_means(np.eye(7), 50) * 7
    assert np.allclose(draws, np.rint(draws))


SOURCE = "The quick brown fox jumps over the lazy dog. It sleeps."


@pytest.mark.parametrize(
    ("prediction", "share"),
    [
        ("quick brown fox jumps over", 1),
        ("QUICK, brown; fox jumps", 1),  # punctuation and case do not matter
        ("quick brown fox jumps high", 0.5),
        ("a quick brown fox", 0),
        ("lazy dog", 1),  # shorter than four words: as it is
        ("dog lazy", 0),
        ("dog", 1),
        ("cat", 0),
    ],
)
def test_shares(prediction, share):
    assert compute_copied_shares([prediction], SOURCE).tolist() == [share]


def test_no_words_have_no_share():
    assert np.isnan(compute_copied_shares(["", "..."], SOURCE)).all()
    assert compute_copied_shares([], SOURCE).shape == (0,)
    assert compute_copied_shares(["quick"], "").tolist() == [0]


def test_batches_are_those_of_sets():
    rng = np.random.default_rng(0)
    source, *predictions = (rng.choice(list("abc"), n).tolist() for n in (40, *rng.integers(1, 20, 60)))
    found = compute_copied_shares([" ".join(words) for words in predictions], " ".join(source), 3)

    def grams(words, n):
        return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

    for words, share in zip(predictions, found, strict=True):
        n = min(len(words), 3)
        assert share == np.mean([gram in set(grams(source, n)) for gram in grams(words, n)])
    assert 0 < np.mean(found == 1) < 1


PREDICTIONS = ["exact match example", "hello there", "general kenobi"]
REFERENCES = [["exact match example"], ["hello", "hi there"], ["commander kenobi"]]
ROUGE = {"rouge/rouge1": 72.2222, "rouge/rouge2": 33.3333, "rouge/rougeL": 72.2222, "rouge/geometric_mean": 55.8136}
PUBLISHED = {"rouge": ROUGE, "f1": {"f1": 72.2222}, "exact_match": {"exact_match": 33.3333}}


@pytest.mark.parametrize(("task", "measure"), SCROLLS.items())
def test_every_task_of_scrolls_gives_the_published_numbers(task, measure):
    metric = load_metric(f"scrolls:{task}")
    found = metric.aggregate(metric.scores(PREDICTIONS, REFERENCES))
    found.pop("rouge/rougeLsum", None)  # where Punkt is installed
    found.pop("rouge/average_of_1_and_2", None)  # BART-LS's
    assert found == PUBLISHED[measure]
    assert metric.primary in found
    with pytest.raises(FarspanError, match=rf"no metric is called 'scrolls:{task}x' \(did you mean 'scrolls:{task}'\?"):
        load_metric(f"scrolls:{task}x")


@pytest.mark.parametrize("name", list_metrics())
def test_every_metric_keeps_its_promises(name):
    """Equal keys in scores and table, a line of description, percent, and no score of nothing."""
    metric = load_metric(name)
    choices = [["exact match example", "no"], ["hello", "go"], ["commander", "kenobi"]]
    options = choices if metric.needs_options else None
    scores = metric.scores(PREDICTIONS, REFERENCES, options)
    assert all(values.shape == (3,) and values.dtype == np.float64 for values in scores.values())
    assert all(values[0] == 100 for values in scores.values())
    assert {*scores} <= {*metric.aggregate(scores)}
    assert metric.primary in metric.aggregate(scores)
    assert "\n" not in metric.flavour
    assert metric.name == name
    assert all(len(values) == 0 for values in metric.scores([], [], options and []).values())
    with pytest.raises(FarspanError, match=f"metric {name}: prediction 1 has no reference"):
        metric.scores(PREDICTIONS[:2], [["a"], []], options and options[:2])


def test_the_best_reference_is_taken_for_each_measure():
    """Here one reference is best by words and the other by their pairs, so both enter."""
    prediction, references = "a b c d", ["d c b a", "x a b y z"]
    found = load_metric("rouge:primera").scores([prediction], [references])
    scorer = RougeScorer(["rouge1", "rouge2"], use_stemmer=True)
    each = [scorer.score(one, prediction) for one in references]
    best = [[score[name].fmeasure for score in each] for name in ("rouge1", "rouge2")]
    assert np.argmax(best[0]) != np.argmax(best[1])
    assert [found["rouge/rouge1"][0], found["rouge/rouge2"][0]] == [100 * max(best[0]), 100 * max(best[1])]


KEYS = {"rouge1", "rouge2", "rougeL", "rougeLsum"}


@pytest.mark.parametrize("name", FLAVOURS)
def test_a_flavour_computes_what_it_publishes(name):
    flavour = FLAVOURS[name]
    assert flavour.longest in flavour.measures
    assert set(flavour.measures) <= KEYS
    assert all(set(parts) <= set(flavour.measures) for parts in flavour.averages.values())
    assert flavour.primary in {"rouge/geometric_mean", *flavour.averages}
    described = flavour.described(name)
    assert described.startswith(f"ROUGE, flavour {name} ({flavour.numbers}); {flavour.tool}, ")
    assert ("APPROXIMATE" in described) == bool(flavour.approximate)
    assert "\n" not in described


def test_each_way_of_splitting_into_lines():
    text = "One . Two.  Three. Four .Five"
    assert FLAVOURS["t5"].lines(text) == "One .\nTwo.  Three. Four .Five"
    assert FLAVOURS["files2rouge-like"].lines(text) == "One .\n Two.  Three. Four .\nFive"
    assert FLAVOURS["primera"].lines(text) == text
    for flavour in FLAVOURS.values():
        if not flavour.needs_punkt or flavours.punkt() is not None:
            assert re.sub(r"\s+", "", flavour.lines(text)) == re.sub(r"\s+", "", text)


SUMMARIES = random_texts([20] * 20, 5)
SUMMARY_REFERENCES = [*map(list, zip(random_texts([30] * 20, 6), random_texts([15] * 20, 7), strict=True))]
# stemmer, published ROUGE-L, and where a text is divided
SCRIPTS: dict[str, tuple[bool, str, Callable[[str], str]]] = {
    "t5": (False, "rougeLsum", lambda text: text.replace(" . ", " .\n")),
    "pegasus_x": (True, "rougeL", str),
    "primera": (True, "rougeL", str),
    "led": (False, "rougeLsum", str),
    "files2rouge-like": (True, "rougeLsum", lambda text: " .\n".join(text.split(" ."))),
    "scrolls": (False, "rougeL", str),
}


@pytest.mark.parametrize("name", FLAVOURS)
def test_a_flavour_is_its_published_script(name):
    stem, longest, divide = SCRIPTS[name]
    metric = load_metric(f"rouge:{name}")
    scores = metric.scores(SUMMARIES, SUMMARY_REFERENCES)
    scorer = RougeScorer(["rouge1", "rouge2", longest], use_stemmer=stem)
    for key in ("rouge1", "rouge2", longest):
        expected = [
            100 * max(scorer.score(divide(one), divide(text))[key].fmeasure for one in own)
            for text, own in zip(SUMMARIES, SUMMARY_REFERENCES, strict=True)
        ]
        assert scores[f"rouge/{key}"].tolist() == expected
    found = metric.aggregate(scores)
    three = [found[f"rouge/{key}"] for key in ("rouge1", "rouge2", longest)]
    assert found["rouge/geometric_mean"] == pytest.approx(np.prod(three) ** (1 / 3), abs=2e-4)
    assert found.get("rouge/average") == (pytest.approx(np.mean(three), abs=2e-4) if name == "primera" else None)
    of_two = pytest.approx((three[0] + three[1]) / 2, abs=2e-4) if name in ("scrolls", "files2rouge-like") else None
    assert found.get("rouge/average_of_1_and_2") == of_two
    assert metric.primary in found
    if name != "t5":
        assert three == [round(scores[f"rouge/{key}"].mean(), 4) for key in ("rouge1", "rouge2", longest)]


def test_t5_takes_the_median_of_bootstrap_means():
    metric = load_metric("rouge:t5")
    scores = metric.scores(SUMMARIES, SUMMARY_REFERENCES)
    found = metric.aggregate(scores)["rouge/rouge1"]
    assert found == round(float(np.median(resample_means(scores["rouge/rouge1"]))), 4)
    assert 0 < abs(found - scores["rouge/rouge1"].mean()) < 0.5


def test_flavours_differ_where_they_should():
    """Equal texts, five different tables: nobody should put them into one."""
    values = {name: load_metric(f"rouge:{name}") for name in FLAVOURS}
    tables = {name: metric.aggregate(metric.scores(SUMMARIES, SUMMARY_REFERENCES)) for name, metric in values.items()}
    assert len({metric.family for metric in values.values()}) == len(FLAVOURS)
    assert len({metric.flavour for metric in values.values()}) == len(FLAVOURS)
    assert "APPROXIMATE" in values["files2rouge-like"].flavour
    assert tables["led"]["rouge/rougeLsum"] != tables["files2rouge-like"]["rouge/rougeLsum"]
    assert tables["scrolls"]["rouge/rouge1"] != tables["primera"]["rouge/rouge1"]
    assert tables["led"]["rouge/rouge1"] != tables["t5"]["rouge/rouge1"]  # the median of resampled means


def test_scrolls_says_when_punkt_is_not_installed(monkeypatch):
    """Only rougeLsum depends on sentences, so nothing else changes."""
    metric = load_metric("scrolls:qmsum")
    monkeypatch.setattr(flavours, "punkt", lambda: None)
    without = metric.scores(SUMMARIES, SUMMARY_REFERENCES)
    assert "rouge/rougeLsum" not in without
    assert "rougeLsum left out" in metric.flavour
    monkeypatch.setattr(flavours, "punkt", _BySemicolon)
    found = metric.scores(["a b; c d"], [["c d; a b"]])
    assert (found["rouge/rougeL"].tolist(), found["rouge/rougeLsum"].tolist()) == ([50], [100])
    assert FLAVOURS["scrolls"].lines("ab;  cd") == "ab;\ncd"
    assert "NLTK's Punkt" in metric.flavour
    again = metric.scores(SUMMARIES, SUMMARY_REFERENCES)
    np.testing.assert_equal({key: again[key] for key in without}, without)


class _BySemicolon:
    """A splitter after semicolons, in place of one that needs data."""

    def boundaries(self, text: str) -> np.ndarray:
        return np.array([0, *(i + 1 for i, letter in enumerate(text[:-1]) if letter == ";")])
