"""Metrics by name give SCROLLS's published example, for every task."""

from __future__ import annotations

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from corpora.errors import FarspanError
from objectives.metrics.flavours import SCROLLS, known_metrics
from objectives.metrics.load import load_metric

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


@pytest.mark.parametrize("name", known_metrics())
def test_every_metric_keeps_its_promises(name):
    """Equal keys in scores and table, a line of description, percent, and no score of nothing."""
    metric = load_metric(name)
    options = (
        [["exact match example", "no"], ["hello", "go"], ["commander", "kenobi"]] if metric.needs_options else None
    )
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


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(FarspanError, match=r"no metric is called 'scrolls:qaspr' \(did you mean 'scrolls:qasper'\?\)"):
        load_metric("scrolls:qaspr")
