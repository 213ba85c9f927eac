"""The table of an evaluation: values, paired intervals, lengths, copies and groups."""

from __future__ import annotations

import json

import numpy as np
import pytest

import farspan
from corpora.errors import FarspanError
from objectives.metrics.bootstrap import resample_means
from objectives.metrics.load import load_metric
from pipelines.evaluation.evaluate import evaluate, load_metrics
from tests.artefacts import make_documents, make_pairs, make_predictions


@pytest.fixture(scope="module")
def table(made):
    return evaluate([made.good, made.poor], "rouge:primera", by=["hard"], bins=3)


def test_values_are_those_of_the_metric(made, table):
    metric = load_metric("rouge:primera")
    texts = [own[0][: len(own[0]) // 2] for own in made.references]
    scores = metric.scores(texts, made.references)
    found = table["systems"][1]["scores"]
    assert {key: number["value"] for key, number in found.items()} == metric.aggregate(scores)
    assert table["metrics"] == {"rouge:primera": {"flavour": metric.flavour, "primary": "rouge/average"}}
    assert (table["examples"], table["split"], table["pairs"]) == (40, "validation", made.pairs)


def test_differences_are_paired(made, table):
    """Restated with counts of draws: the same examples for both systems."""
    draws = np.rint(40 * resample_means(np.eye(40)))
    metric = load_metric("rouge:primera")
    good = metric.scores([own[-1] for own in made.references], made.references)
    poor = metric.scores([own[0][: len(own[0]) // 2] for own in made.references], made.references)
    difference = draws @ (poor["rouge/rouge1"] - good["rouge/rouge1"]) / 40
    assert table["systems"][0]["differences"] == {}
    found = table["systems"][1]["differences"]["rouge/rouge1"]
    assert [found["low"], found["high"]] == pytest.approx(np.percentile(difference, [2.5, 97.5]), abs=1e-4)
    assert found["value"] == pytest.approx((poor["rouge/rouge1"] - good["rouge/rouge1"]).mean(), abs=2e-4)
    means = [draws @ poor[f"rouge/{key}"] / 40 for key in ("rouge1", "rouge2", "rougeL")]
    found = table["systems"][1]["scores"]["rouge/geometric_mean"]
    expected = np.percentile(np.prod(means, axis=0) ** (1 / 3), [2.5, 97.5])
    assert [found["low"], found["high"]] == pytest.approx(expected, abs=1e-4)
    assert found["low"] < found["value"] < found["high"]


def test_a_system_does_not_differ_from_itself(made):
    table = evaluate([made.poor, made.poor], ["f1", "exact_match"])
    none = {"value": 0, "low": 0, "high": 0}
    assert table["systems"][1]["differences"] == {"f1": none, "exact_match": none}


def test_equal_calls_give_equal_tables(made, table):
    assert evaluate([made.good, made.poor], ["rouge:primera"], by=["hard"], bins=3) == table
    other = evaluate([made.good, made.poor], ["rouge:primera"], by=["hard"], bins=3, seed=1)
    assert other["systems"][1]["scores"] != table["systems"][1]["scores"]


def test_groups_have_all_pairs(made, table):
    bins, hard = table["groups"]["source tokens"], table["groups"]["hard"]
    for groups in (bins, hard):
        assert sum(group["examples"] for group in groups) == 40
        assert [[*own] for group in groups for own in group["scores"]] == [["rouge/average"]] * 2 * len(groups)
    assert max(group["examples"] for group in bins) - min(group["examples"] for group in bins) <= 4
    assert [group["name"] for group in hard] == ["false", "none", "true"]
    medians = [group["median_source_tokens"] for group in bins]
    assert medians == sorted(medians)
    whole = table["systems"][1]["scores"]["rouge/average"]["value"]
    average = sum(group["examples"] * group["scores"][1]["rouge/average"]["value"] for group in bins) / 40
    assert average == pytest.approx(whole, abs=1e-3)


def test_lengths_and_empty_predictions(made, table):
    good, poor = table["systems"]
    assert good["reference_words"] == poor["reference_words"]
    assert good["predicted_words"] == pytest.approx(
        np.mean([len(own[-1].split()) for own in made.references]), abs=1e-4
    )
    texts = [own[0][: len(own[0]) // 2] for own in made.references]
    assert poor["empty"] == sum(not text.split() for text in texts) > 0


def test_both_metrics_of_quality_stand_in_one_table(made):
    found = evaluate(made.good, ["scrolls:quality", "quality_nearest"])["systems"][0]["scores"]
    assert found["exact_match"]["value"] == 100
    assert 0 < found["nearest_exact_match"]["value"] < 100  # of two references, the last was said


def test_two_flavours_are_refused(made):
    with pytest.raises(
        FarspanError, match="metrics rouge:t5 and scrolls:qmsum are two flavours of ROUGE, whose numbers"
    ):
        evaluate(made.good, ["rouge:t5", "scrolls:qmsum"])
    assert [metric.name for metric in load_metrics(["rouge:scrolls", "scrolls:qmsum", "f1", "f1"])] == [
        "rouge:scrolls",
        "scrolls:qmsum",
        "f1",
    ]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"metrics": []}, "no metric is named"),
        ({"metrics": "scrolls:qualty"}, "did you mean 'scrolls:quality'"),
        ({"metrics": "f1", "bins": 0}, "^bins 0: give a number of at least 1"),
        ({"metrics": "f1", "resamples": 10}, "^resamples 10: give a number of at least 40"),
    ],
)
def test_bad_options(made, keywords, message):
    with pytest.raises(FarspanError, match=message):
        evaluate(made.good, **keywords)


def test_no_predictions():
    with pytest.raises(FarspanError, match="no predictions are named"):
        evaluate([], "f1")


def test_the_command(made, tmp_path, run):
    wanted = tmp_path / "t.json"
    arguments = (made.good, made.poor, "--metrics", "rouge:t5")
    status, printed, _ = run("evaluate", *arguments, "--json", wanted, "--resamples", 100)
    assert status == 0
    table = json.loads(wanted.read_text())
    assert table == farspan.evaluate([made.good, made.poor], "rouge:t5", resamples=100)
    assert table["metrics"]["rouge:t5"]["flavour"] in printed
    assert "40 pairs of split validation" in printed
    assert "less the first" in printed
    assert f"{table['systems'][1]['scores']['rouge/rouge1']['value']:.2f}" in printed
    status, _, errors = run("evaluate", *arguments, "--metrics", "rouge:led")
    assert (status, errors.count("\n")) == (1, 1)
    assert "metrics rouge:t5 and rouge:led are two flavours of ROUGE" in errors


def test_groups_by_a_number_are_in_its_order(tmp_path):
    pairs = make_pairs(
        str(tmp_path / "p"),
        make_documents(str(tmp_path / "d")),
        splits=["validation"],
        attributes=[{"hops": hops} for hops in (10, 2, -1, "many", 2.5)] + [{}],
    )
    table = evaluate(make_predictions(str(tmp_path / "g"), pairs), "f1", by=["hops"])
    assert [group["name"] for group in table["groups"]["hops"]] == ["-1", "2", "2.5", "10", "many", "none"]
