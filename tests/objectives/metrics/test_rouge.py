"""Flavours of ROUGE and the scores of summaries."""

from __future__ import annotations

import re

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from objectives.metrics import flavours
from objectives.metrics.bootstrap import resample_means
from objectives.metrics.flavours import FLAVOURS
from objectives.metrics.load import load_metric
from tests.objectives.rouge.test_counts import random_texts

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


def test_sentences_of_punkt_become_lines(monkeypatch):
    """With a splitter in place of Punkt, whose data may be missing."""

    class Halves:
        def boundaries(self, text):
            return np.array([0, len(text) // 2])

    monkeypatch.setattr(flavours, "punkt", Halves)
    assert FLAVOURS["scrolls"].lines("ab  cd") == "ab\ncd"
    assert "rougeLsum" in FLAVOURS["scrolls"].measures
    monkeypatch.setattr(flavours, "punkt", lambda: None)
    assert "rougeLsum" not in FLAVOURS["scrolls"].measures
    assert "rougeLsum left out" in FLAVOURS["scrolls"].described("scrolls")


PREDICTIONS = random_texts([20] * 20, 5)
REFERENCES = [[one, other] for one, other in zip(random_texts([30] * 20, 6), random_texts([15] * 20, 7), strict=True)]
# stemmer, published ROUGE-L, and where a text is divided
SCRIPTS = {
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
    scores = metric.scores(PREDICTIONS, REFERENCES)
    scorer = RougeScorer(["rouge1", "rouge2", longest], use_stemmer=stem)
    for key in ("rouge1", "rouge2", longest):
        expected = [
            100 * max(scorer.score(divide(one), divide(text))[key].fmeasure for one in own)
            for text, own in zip(PREDICTIONS, REFERENCES, strict=True)
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
    scores = metric.scores(PREDICTIONS, REFERENCES)
    found = metric.aggregate(scores)["rouge/rouge1"]
    assert found == round(float(np.median(resample_means(scores["rouge/rouge1"]))), 4)
    mean = scores["rouge/rouge1"].mean()
    assert 0 < abs(found - mean) < 0.5


def test_flavours_differ_where_they_should():
    """Equal texts, five different tables: nobody should put them into one."""
    values = {name: load_metric(f"rouge:{name}") for name in FLAVOURS}
    tables = {name: metric.aggregate(metric.scores(PREDICTIONS, REFERENCES)) for name, metric in values.items()}
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
    without = metric.scores(PREDICTIONS, REFERENCES)
    assert "rouge/rougeLsum" not in without
    assert "rougeLsum left out" in metric.flavour
    monkeypatch.setattr(flavours, "punkt", _BySemicolon)
    found = metric.scores(["a b; c d"], [["c d; a b"]])
    assert (found["rouge/rougeL"].tolist(), found["rouge/rougeLsum"].tolist()) == ([50], [100])
    assert "NLTK's Punkt" in metric.flavour
    assert {
        key: values.tolist() for key, values in metric.scores(PREDICTIONS, REFERENCES).items() if key in without
    } == {key: values.tolist() for key, values in without.items()}


class _BySemicolon:
    """A splitter after semicolons, in place of one that needs data."""

    def boundaries(self, text: str) -> np.ndarray:
        return np.array([0, *(i + 1 for i, letter in enumerate(text[:-1]) if letter == ";")])
