"""Figures of evaluations: both panels, the flavour in full, the same bytes every time."""

import numpy as np
import pytest

from corpora.errors import FarspanError
from pipelines.evaluation.evaluate import command, evaluate
from pipelines.evaluation.figure import _apart, draw
from pipelines.evaluation.options import Evaluate, Evaluation


def test_a_figure_says_what_it_shows(made, tmp_path):
    table = evaluate([made.good, made.poor], "f1", bins=2, resamples=50)
    for name in ("a.svg", "b.svg"):
        draw(table, str(tmp_path / name))
    picture = (tmp_path / "a.svg").read_text()
    assert picture == (tmp_path / "b.svg").read_text()
    assert picture.count('id="axes_') == 2
    for text in (
        "f1: token F1",
        "tokens of the source, median of each group",
        "validation, 40 pairs",
        "f1 over source",
    ):
        assert text in picture
    assert picture.count(">good</text>") == picture.count(">poor</text>") == 2  # at the axis and at the line


def test_numbers_of_groups_do_not_run_into_each_other():
    places = np.array([296.0, 517, 542, 5236])
    assert _apart(np.log(places), places) == ["296", "517", "", "5.24k"]
    assert _apart(places[:1], places[:1]) == ["296"]


def test_a_suffix_that_is_no_picture_is_refused_before_any_work(made, tmp_path, capsys):
    options = Evaluate(predictions=(made.good,), figure="x.csv", evaluation=Evaluation(metrics=("f1",)))
    with pytest.raises(FarspanError, match=r"--figure x.csv: the suffix names no kind of picture; give FILE.svg"):
        command(options)
    assert capsys.readouterr().out == ""
