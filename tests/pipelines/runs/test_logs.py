"""Logs of runs: curves, restarts, spikes."""

from __future__ import annotations

import numpy as np
import pytest

from corpora.errors import FarspanError
from pipelines.runs.logs import average, read_logs, spikes
from tests.pipelines.runs.folders import losses, make_run
from trainer.run.logs import TensorBoard


def test_curves_restarts_and_tokens(tmp_path):
    logs = read_logs(make_run(tmp_path / "run", restarts=[60, 120]))
    steps, values = logs.curve("loss")
    assert steps.tolist() == list(range(1, 201))
    np.testing.assert_allclose(values, losses(200))
    assert (logs.held_out, logs.restarts) == (["held_out_loss/wiki"], [60, 120])
    assert logs.curve("held_out_loss/wiki")[0].tolist() == [50, 100, 150, 200]
    assert logs.tokens_at(np.array([0, 1, 50, 200])).tolist() == [0, 1000, 50_000, 200_000]


def test_an_incomplete_last_line_is_left_out(tmp_path):
    folder = make_run(tmp_path / "run")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 201, "lo')
    assert len(read_logs(folder).curve("loss")[0]) == 200


def test_values_that_are_not_finite_are_no_points_of_a_curve(tmp_path, run):
    make_run(tmp_path / "a")
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 201, "loss": NaN, "grad_norm": Infinity}\n')
    steps, losses = read_logs(tmp_path / "a").curve("loss")
    assert (steps[-1], len(losses)) == (200, 200)
    assert run("plot", tmp_path / "a", "--figure", tmp_path / "new" / "a.svg")[0] == 0


def test_tensorboard_alone_is_read(tmp_path):
    log = TensorBoard(tmp_path, 0)
    for step, loss in enumerate(losses(30), 1):
        log.write({"step": step, "loss": float(loss), "source_tokens": 100})
    log.close()
    logs = read_logs(tmp_path)
    np.testing.assert_allclose(logs.curve("loss")[1], losses(30), rtol=1e-6)
    assert logs.tokens_at(np.array([30])).tolist() == [3000]


def test_a_folder_without_logs_is_refused(tmp_path):
    with pytest.raises(FarspanError, match=r"no metrics\.jsonl, and no event files"):
        read_logs(tmp_path)


def test_a_moving_average():
    assert average(np.array([2.0, 4.0, 6.0, 8.0]), 2).tolist() == [2, 3, 5, 7]
    assert average(np.array([2.0, 4.0]), 9).tolist() == [2, 3]


def test_a_moving_median_leaves_out_a_single_high_value():
    assert average(np.array([2.0, 4.0, 900.0, 6.0]), 3, outliers=True).tolist() == [2, 3, 4, 6]
    assert average(np.array([2.0, 4.0]), 1, outliers=True).tolist() == [2, 4]


def test_spikes_are_those_that_were_made():
    steps = np.arange(1, 201)
    assert spikes(steps, losses(200)) == []
    assert spikes(steps, losses(200, [77, 150])) == [77, 150]
    near = losses(200, [77, 78, 79])
    near[77] += 1  # step 78 is the highest of three neighbours
    assert spikes(steps, near) == [78]


def test_of_many_spikes_the_highest_are_named():
    values = losses(400, range(20, 400, 20))
    values[199] += 5
    found = spikes(np.arange(1, 401), values, max_spikes=3)
    assert len(found) == 3
    assert 200 in found


def test_a_constant_or_short_loss_has_no_spike():
    assert spikes(np.arange(100), np.ones(100)) == []
    assert spikes(np.arange(3), np.array([1.0, 9.0, 1.0])) == []
