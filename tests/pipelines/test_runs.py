"""`farspan runs` and `farspan plot`: logs, curves, restarts, spikes and states of runs."""

import fcntl
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import farspan
from pipelines.pages.catalog import find_entries
from pipelines.runs.logs import Follower, average, find_spikes, read_logs, runs
from pipelines.runs.plot import smooth_curve
from pipelines.view.run_pages import draw_panels
from trainer.run.logs import MetricsLog


def losses(steps: int, spikes: Sequence[int] = ()) -> np.ndarray:
    """``(steps,)`` falling losses with a little noise, and high ones at ``spikes``, counted from 1."""
    values = 3 + 2 * np.exp(-np.arange(steps) / 50) + 0.02 * np.random.default_rng(0).standard_normal(steps)
    values[np.array(spikes, int) - 1] += 2
    return values


def make_run(folder: Path, steps: int = 200, spikes: Sequence[int] = (), restarts: Sequence[int] = ()) -> Path:
    """A run with metrics and starts, evaluated at every 50th step."""
    folder.mkdir(parents=True)
    lines: list[dict] = []
    for step, loss in enumerate(losses(steps, spikes).tolist(), 1):
        numbers = {"loss": loss, "learning_rate": 1e-3 / step, "grad_norm": 1.0, "source_tokens": 1000}
        lines.append({"step": step, **numbers, "source_tokens_per_second": 5000.0})
        if step % 50 == 0:
            lines.append({"step": step, "held_out_loss/wiki": loss + 0.1})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    starts = [{"started": "2026-01-02T03:04:05+00:00", "recipe": "tiny", "step": step, "steps": 400}
              for step in (0, *restarts)]  # fmt: skip
    (folder / "starts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in starts))
    return folder


def test_curves_restarts_and_tokens(tmp_path):
    logs = read_logs(make_run(tmp_path / "run", restarts=[60, 120]))
    steps, values = logs.curve("loss")
    assert steps.tolist() == list(range(1, 201))
    np.testing.assert_allclose(values, losses(200))
    assert (logs.held_out, logs.restarts) == (["held_out_loss/wiki"], [60, 120])
    assert logs.curve("held_out_loss/wiki")[0].tolist() == [50, 100, 150, 200]
    assert logs.tokens_at(np.array([0, 1, 50, 200])).tolist() == [0, 1000, 50_000, 200_000]


def test_a_run_is_followed_while_it_grows(tmp_path):
    folder = make_run(tmp_path / "run", steps=60)
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"")
    follower, steps = Follower(folder), []
    with path.open("ab", buffering=0) as file:
        for part in (b"", lines[0], lines[1][:9], lines[1][9:] + b"".join(lines[2:40])):
            file.write(part)
            steps.append(len(follower.read().records))
    assert steps == [0, 1, 1, 40]
    assert follower.read().records == read_logs(folder).records
    again = tmp_path / "again"
    again.write_bytes(b"".join(lines[:10]) + lines[20])
    again.replace(path)  # as a start from an earlier checkpoint does
    assert follower.read().records == read_logs(folder).records


@settings(max_examples=20)
@given(st.lists(st.floats(0, 5, width=32), max_size=130), st.integers(0, 2**31))
def test_spikes_are_those_of_the_definition(values, seed):
    loss = np.array(values, float)
    loss[np.random.default_rng(seed).random(len(loss)) < 0.03] += 20
    heights = {}
    for number in range(10, len(loss)):
        before = loss[max(number - 50, 0) : number]
        middle = np.median(before)
        spread = max(np.median(np.abs(before - middle)), 1e-3 * abs(middle), np.finfo(float).tiny)
        if (loss[number] - middle) / spread >= 8:
            heights[number] = (loss[number] - middle) / spread
    close: list[list[int]] = []
    for number in heights:
        if close and number - close[-1][-1] <= 10:
            best = max(close[-1][-1], number, key=lambda one: (heights[one], one))
            close[-1] = [best]
        else:
            close.append([number])
    expected = sorted(sorted((group[0] for group in close), key=lambda one: -heights[one])[:10])
    assert find_spikes(np.arange(len(loss)), loss) == expected


def test_values_that_are_not_finite_and_an_incomplete_last_line_are_no_points_of_a_curve(tmp_path, run):
    make_run(tmp_path / "a")
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 201, "loss": NaN, "grad_norm": Infinity}\n{"step": 202, "lo')
    steps, losses = read_logs(tmp_path / "a").curve("loss")
    assert (steps[-1], len(losses)) == (200, 200)
    assert run("plot", tmp_path / "a", "--figure", tmp_path / "new" / "a.svg")[0] == 0


def test_the_only_value_of_a_curve_is_a_short_line(tmp_path):
    logs = read_logs(make_run(tmp_path / "a", steps=50))  # evaluated once
    (panel,) = (one for one in draw_panels({0: logs}) if one.title == "held-out loss")
    (left, top), (right, bottom) = (point.split(",") for point in panel.lines[0].points.split())
    assert (float(right) - float(left), top) == (8.0, bottom)


def test_tensorboard_alone_is_read(tmp_path):
    log = MetricsLog(tmp_path, 0, tensorboard=True)
    for step, loss in enumerate(losses(30), 1):
        log.write({"step": step, "loss": float(loss), "source_tokens": 100})
    log.close()
    (tmp_path / "metrics.jsonl").unlink()
    logs = read_logs(tmp_path)
    np.testing.assert_allclose(logs.curve("loss")[1], losses(30), rtol=1e-6)
    assert logs.tokens_at(np.array([30])).tolist() == [3000]


def test_a_short_run_is_smoothed_little_and_a_finished_one_not_started_again(tmp_path):
    logs = read_logs(make_run(tmp_path / "run", steps=60, restarts=[30, 60]))
    assert logs.restarts == [30]
    steep = np.exp(-np.arange(60) / 5)
    assert np.abs(smooth_curve(steep, "loss", 25) - steep).max() < 0.2  # 0.6 for an average of 25


@pytest.mark.parametrize(
    ("values", "width", "outliers", "expected"),
    [
        ([2, 4, 6, 8], 2, False, [2, 3, 5, 7]),
        ([2, 4], 9, False, [2, 3]),
        ([2, 4, 900, 6], 3, True, [2, 3, 4, 6]),  # a median leaves a single high value out
        ([2, 4], 1, True, [2, 4]),
    ],
)
def test_moving_averages(values, width, outliers, expected):
    assert average(np.array(values, float), width, outliers=outliers).tolist() == expected


def test_of_many_spikes_the_highest_are_named():
    values = losses(400, range(20, 400, 20))
    values[199] += 5
    found = find_spikes(np.arange(1, 401), values, max_spikes=3)
    assert len(found) == 3
    assert 200 in found


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_curves_restarts_and_spikes(tmp_path, run):
    one, other = make_run(tmp_path / "one", spikes=[120], restarts=[60]), make_run(tmp_path / "other")
    path = tmp_path / "curves.svg"
    status, out, errors = run("plot", one, other, "--figure", path, "--over", "tokens")
    assert (status, errors) == (0, "")
    assert out.splitlines() == [f"the loss rose at step 120: farspan show {one} --step 120", f"figure: {path}"]
    svg = path.read_text()
    found = texts(svg)
    assert {"loss", "held-out loss", "learning rate", "gradient norm", "source tokens/s"} <= set(found)
    assert {"one", "other", "one wiki", "50k", "source tokens"} <= set(found)
    assert svg.count('id="restart"') == 5  # one in each panel
    assert f'id="farspan show {one} --step 120"' in svg  # the mark names the whole command
    assert "farspan show … --step 120" in found  # as this folder's name is too long for the panel
    assert any(text.startswith("dotted: the run was started again; triangle: the loss rose") for text in found)


def test_each_mark_names_its_command_in_full_view(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "a", spikes=[100, 150, 152, 190])
    _, out, _ = run("plot", "runs/a", "--figure", "curves.svg")
    commands = [f"farspan show runs/a --step {step}" for step in (100, 150, 190)]
    assert [line.partition(": ")[2] for line in out.splitlines()[:-1]] == commands
    assert set(commands) <= set(texts((tmp_path / "curves.svg").read_text()))


def test_only_the_metrics_that_were_asked_for(tmp_path, run):
    one, path = make_run(tmp_path / "one"), tmp_path / "curves.svg"
    assert run("plot", one, "--metric", "held_out_loss", "--metric", "loss", "--figure", path)[0] == 0
    titles = {"loss", "held-out loss", "learning rate", "gradient norm", "source tokens/s"}
    assert titles & set(texts(path.read_text())) == {"loss", "held-out loss"}
    assert "--metric losses: choose one of loss, held_out_loss," in run("plot", one, "--metric", "losses")[2]
    short = make_run(tmp_path / "short", steps=3)
    _, _, errors = run("plot", short, "--metric", "held_out_loss")
    assert errors.endswith(f"--metric held_out_loss: {short} did not record it; leave it out\n")


def test_the_python_function_returns_the_figure(tmp_path):
    path = tmp_path / "loss.png"
    assert farspan.plot([make_run(tmp_path / "one", steps=3)], metric="loss", figure=path) == path
    assert path.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn(tmp_path, run):
    status, _, errors = run("plot", tmp_path, "--figure", tmp_path / "x.svg")
    assert status == 1
    assert "no metrics.jsonl, and no event files of TensorBoard; give a run of `farspan train`" in errors
    assert run("plot", tmp_path, "--smooth", 0)[0] == 1


def test_runs_at_any_depth_with_their_states(tmp_path, run):
    make_run(tmp_path / "a")
    make_run(tmp_path / "deep" / "b")
    (tmp_path / "deep" / "b" / "summary.json").write_text("{}")
    status, out, _ = run("runs", tmp_path, "--json")
    first, second = json.loads(out)
    assert (status, first["run"], second["run"]) == (0, "a", "deep/b")
    assert (first["state"], second["state"]) == ("stopped", "finished")
    assert (first["recipe"], first["step"], first["steps"], first["tokens_per_second"]) == ("tiny", 200, 400, 5000)
    assert first["loss"] == losses(200)[-1]
    assert first["held_out_loss"] == losses(200)[-1] + 0.1


def test_the_held_out_loss_of_several_sources_is_that_of_all_tokens(tmp_path):
    make_run(tmp_path / "a")
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        print(
            json.dumps({"step": 200, "held_out_loss": 3.0, "held_out_loss/wiki": 2.0, "held_out_loss/x": 7.0}),
            file=file,
        )
    assert runs(tmp_path)[0]["held_out_loss"] == 3.0


def test_a_run_killed_in_its_first_entry_hides_no_other(tmp_path):
    make_run(tmp_path / "a")
    (make_run(tmp_path / "b") / "metrics.jsonl").write_text('{"step": 1, "lo')
    assert [one["run"] for one in runs(tmp_path)] == ["a"]


def test_the_table_is_whole_in_a_log(tmp_path, run):
    make_run(tmp_path / "a-run-with-a-long-name")
    _, out, _ = run("runs", tmp_path)
    for text in ("a-run-with-a-long-name", "tiny", "200 of 400", "5,000", "stopped", "2026-01-02T03:04"):
        assert text in out


@pytest.mark.parametrize(("steps", "summary", "state"), [(400, False, "stopped"), (200, True, "finished")])
def test_every_list_calls_a_run_with_a_summary_finished_and_no_other(tmp_path, steps, summary, state):
    """Even one that has made all its updates; one that ended early by ``evaluation.patience`` is finished."""
    folder = make_run(tmp_path / "run", steps=steps)
    (folder / "recipe.json").write_text("{}")
    if summary:
        (folder / "summary.json").write_text("{}")
    (entry,) = find_entries([str(tmp_path)])
    assert (runs(tmp_path)[0]["state"], entry.state) == (state, state)


def test_a_run_in_use_is_running(tmp_path):
    folder = make_run(tmp_path / "a") / "checkpoints"
    folder.mkdir()
    with (folder / "run.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert runs(tmp_path)[0]["state"] == "running"
    assert runs(tmp_path)[0]["state"] == "stopped"


def test_a_folder_without_runs_is_refused(tmp_path, run):
    status, _, errors = run("runs", tmp_path)
    assert (status, errors) == (1, f"farspan: {tmp_path}: holds no run; give a folder with runs of `farspan train`\n")
