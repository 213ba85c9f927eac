"""farspan runs."""

from __future__ import annotations

import fcntl
import json

from pipelines.runs.table import runs
from tests.pipelines.runs.folders import losses, make_run


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
