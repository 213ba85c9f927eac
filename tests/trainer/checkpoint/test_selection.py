from __future__ import annotations

import json
import math

import pytest

from corpora.errors import FarspanError
from tests.trainer.small_run import Run, save, steps, truncate
from trainer.checkpoint.files import MANIFEST
from trainer.checkpoint.run_files import read_sealed
from trainer.checkpoint.selection import Selection, find_checkpoint

SCORE = "rouge/geometric_mean"


def after(values, metric=SCORE):
    """The selection after one evaluation a step with the given values."""
    selection = Selection(metric)
    for step, value in enumerate(values, 1):
        selection = selection.measured(step, {metric: value})
    return selection


@pytest.mark.parametrize(
    ("metric", "values", "best", "since"),
    [
        (SCORE, [1.0, 3.0, 2.0], 2, 1),
        (SCORE, [3.0, 3.0, 3.0], 1, 2),  # ties: the earlier
        ("held_out_loss", [3.0, 1.0, 1.0, 2.0], 2, 2),
        ("held_out_loss/qasper", [3.0, 1.0], 2, 0),
        (SCORE, [None, math.nan, 0.0], 3, 0),
        (SCORE, [math.inf, None], None, 2),
    ],
)
def test_the_best_is_the_first_of_the_best_finite_values(metric, values, best, since):
    selection = after(values, metric)
    assert (selection.step, selection.since, selection.evaluated) == (best, since, len(values))


def test_an_evaluation_without_the_metric_leaves_the_best(tmp_path):
    selection = after([1.0]).measured(2, {"held_out_loss": 0.0})
    assert (selection.step, selection.since, selection.evaluated) == (1, 0, 2)


def selected_run(directory, values, **config):
    """Checkpoints of steps 1, 2, ..., each after an evaluation with the given value, as one run."""
    run = Run(directory, **{"best": SCORE, "keep": 1, **config})
    with run.checkpoints:
        first = run.restore() or 0
        for step, value in enumerate(values[first:], first + 1):
            run.update(step)
            run.checkpoints.selection = run.checkpoints.selection.measured(step, {SCORE: value})
            run.save(step)
    return run


def test_the_best_is_kept_beside_the_newest(tmp_path):
    selected_run(tmp_path, [1.0, 5.0, 2.0, 3.0, 4.0], keep=2)
    assert steps(tmp_path) == ["step-00000002", "step-00000004", "step-00000005"]
    assert find_checkpoint(tmp_path, "best").name == "step-00000002"
    assert find_checkpoint(tmp_path).name == "step-00000005"
    assert find_checkpoint(tmp_path, "4").name == "step-00000004"
    assert read_sealed(tmp_path / "best.json") == {"metric": SCORE, "step": 2, "value": 5.0}
    selected_run(tmp_path, [1.0, 5.0, 2.0, 3.0, 4.0, 6.0, 1.0], keep=2)
    assert steps(tmp_path) == ["step-00000006", "step-00000007"]


def test_a_run_that_falls_back_still_has_its_best(tmp_path):
    """The newest checkpoint, which is the best, is damaged: the one before it still knows and has its own best."""
    selected_run(tmp_path, [5.0, 2.0, 3.0, 6.0], keep=2)
    assert steps(tmp_path) == ["step-00000001", "step-00000003", "step-00000004"]
    (file,) = (tmp_path / "step-00000004/model").iterdir()
    truncate(file)
    run = Run(tmp_path, best=SCORE)
    with run.checkpoints:
        assert run.restore() == 3
    assert (run.checkpoints.selection.step, run.checkpoints.selection.value) == (1, 5.0)
    assert read_sealed(tmp_path / "best.json")["step"] == 1


def test_a_selection_is_added_to_a_finished_checkpoint(tmp_path):
    run = Run(tmp_path, best=SCORE, asynchronous=True)
    with run.checkpoints:
        run.restore()
        path = run.save(1)
        run.checkpoints.selection = after([7.0])
        run.checkpoints.save_selection(1)
    assert json.loads((path / MANIFEST).read_text())["selection"]["value"] == 7.0
    assert find_checkpoint(tmp_path, "best") == path


def test_another_metric_begins_anew(tmp_path):
    selected_run(tmp_path, [1.0])
    run = Run(tmp_path, best="held_out_loss")
    with run.checkpoints:
        run.restore()
    assert run.checkpoints.selection == Selection("held_out_loss", evaluated=1)


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("best", "the run chose no best checkpoint; give newest or a step \\(1\\)"),
        ("2", "no checkpoint '2'; give newest, best or one of the steps 1"),
        ("bst", "no checkpoint 'bst'"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_named(tmp_path, which, message):
    save(tmp_path, 1)
    with pytest.raises(FarspanError, match=message):
        find_checkpoint(tmp_path, which)
    with pytest.raises(FarspanError, match="holds no checkpoint"):
        find_checkpoint(tmp_path / "step-00000001/model", which)
