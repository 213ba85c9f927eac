"""Options of ``farspan evaluate`` and ``farspan submit``."""

from __future__ import annotations

from pipelines.evaluation.options import Evaluate, Evaluation, Submission
from tests.pipelines.typed import typed


def test_metrics_and_attributes_are_repeated():
    line = "a b.json --metrics f1 --metrics rouge:t5 --by hard --bins 3 --json table.json"
    assert typed(Evaluate, line) == Evaluate(
        predictions=("a", "b.json"),
        evaluation=Evaluation(metrics=("f1", "rouge:t5"), by=("hard",), bins=3),
        json="table.json",
    )


def test_a_submission_is_of_several_predictions():
    assert typed(Submission, "qasper=a b --output s.csv --partial") == Submission(
        predictions=("qasper=a", "b"), output="s.csv", partial=True
    )
