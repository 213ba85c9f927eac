"""Tests of the files of checkpoints and of those beside them, and of the selection of one."""

import json
import math
import os
import pickle
import shutil

import pytest

from corpora.errors import FarspanError
from tests.trainer.small_run import Run, flip, load, save, shard, steps, truncate
from trainer.checkpoint.files import MANIFEST, file_facts, find_fault
from trainer.checkpoint.run_files import (
    METRICS,
    STARTS,
    SUMMARY,
    DamagedError,
    RunLock,
    find_faults,
    keep_recipe,
    keep_start,
    read_lines,
    read_record,
    read_sealed,
    read_tokenizer,
    seal_line,
    write_sealed,
)
from trainer.checkpoint.selection import Selection, find_checkpoint
from trainer.checkpoint.state import describe_stored_tensors, load_tensors


def test_the_manifest_says_what_the_folder_holds(tmp_path):
    path = save(tmp_path, 7)
    manifest = json.loads((path / MANIFEST).read_text())
    assert (manifest["step"], manifest["samples"], manifest["vocabulary"]) == (7, 70, {"size": 5})
    assert manifest["files"] == {
        str(file.relative_to(path)): file_facts(file) for part in ("model", "optimizer") for file in [shard(path, part)]
    }
    assert describe_stored_tensors(path / "model").keys() == Run(tmp_path).model.state_dict().keys()
    state = {name.rsplit(".", 1)[1] for name in describe_stored_tensors(path / "optimizer")}
    assert state == {"step", "exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize("damage", [truncate, flip, os.remove])
@pytest.mark.parametrize("name", ["model", "optimizer", MANIFEST])
def test_a_damaged_checkpoint_is_passed_over_and_replaced(tmp_path, damage, name):
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    file = newest / name if name == MANIFEST else shard(newest, name)
    if name == MANIFEST and damage is flip:
        file.write_text("[]")
    else:
        damage(file)
    step, run = load(tmp_path)
    assert step == 1
    assert len(run.said) == 1
    assert str(newest) in run.said[0]
    assert file.name in run.said[0]
    save(tmp_path, 2, keep=1)
    assert load(tmp_path)[0] == 2
    assert steps(tmp_path) == ["step-00000002"]


@pytest.mark.parametrize(
    "written",
    [{"files": None}, {"files": ["model"]}, {"files": {"model/x": 5}}, {"identity": 5}, {"step": "2"}, {"step": 20}],
)
def test_a_manifest_that_says_something_else_is_damage(tmp_path, written):
    save(tmp_path, 1)
    manifest = save(tmp_path, 2) / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **written}))
    step, run = load(tmp_path)
    assert step == 1
    assert f"is damaged ({MANIFEST}" in run.said[0]


@pytest.mark.parametrize("part", ["model", "optimizer"])
def test_a_file_that_nobody_vouches_for_is_not_read(tmp_path, part):
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    shutil.copy(shard(tmp_path / "step-00000001", part), path / part / "more.safetensors")
    step, run = load(tmp_path)
    assert step == 1
    assert f"({part}/more.safetensors is not in the manifest)" in run.said[0]


def test_a_file_in_the_place_of_a_checkpoint_is_replaced(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "step-00000002").write_text("")
    (tmp_path / "step-00000003.tmp-1").write_text("")
    save(tmp_path, 2)
    assert load(tmp_path)[0] == 2
    assert steps(tmp_path) == ["step-00000001", "step-00000002"]


def test_damage_costs_no_good_checkpoint(tmp_path):
    """A damaged checkpoint is not one of those that ``keep`` counts."""
    for step in (1, 5, 6):
        save(tmp_path, step)
    for step in (5, 6):
        truncate(shard(tmp_path / f"step-0000000{step}", "model"))
    save(tmp_path, 2, keep=2)
    assert steps(tmp_path) == [f"step-0000000{step}" for step in (1, 2, 5, 6)]
    assert load(tmp_path)[0] == 2


def test_nothing_but_damage_is_no_fresh_start(tmp_path):
    truncate(shard(save(tmp_path, 1), "model"))
    with pytest.raises(FarspanError, match="all 1 checkpoints"):
        load(tmp_path)


def test_another_version_is_refused_by_name(tmp_path):
    path = save(tmp_path, 1) / MANIFEST
    write_sealed(path, {**read_sealed(path), "format_version": 0})
    with pytest.raises(FarspanError, match=r"version 0; this farspan reads 'farspan.checkpoint' v"):
        load(tmp_path)


def test_no_code_is_loaded(tmp_path):
    """A file with the right hash that holds a pickled object is refused, not opened."""
    path = save(tmp_path, 1)
    file = shard(path, "model")
    file.write_bytes(pickle.dumps(find_fault))
    manifest = read_sealed(path / MANIFEST)
    manifest["files"][str(file.relative_to(path))] = file_facts(file)
    write_sealed(path / MANIFEST, manifest)
    assert find_fault(path) is None
    for read, place in ((load, tmp_path), (load_tensors, path / "model")):
        with pytest.raises(FarspanError, match="holds no tensors that farspan wrote"):
            read(place)


SCORE = "rouge/geometric_mean"


def after(values, metric=SCORE):
    """The selection after one evaluation a step with the given values."""
    selection = Selection(metric)
    for step, value in enumerate(values, 1):
        selection = selection.add_evaluation(step, {metric: value})
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
    selection = after([1.0]).add_evaluation(2, {"held_out_loss": 0.0})
    assert (selection.step, selection.since, selection.evaluated) == (1, 0, 2)


def selected_run(directory, values, **config):
    """Checkpoints of steps 1, 2, ..., each after an evaluation with the given value, as one run."""
    run = Run(directory, **{"best": SCORE, "keep": 1, **config})
    with run.checkpoints:
        first = run.restore() or 0
        for step, value in enumerate(values[first:], first + 1):
            run.update(step)
            run.checkpoints.selection = run.checkpoints.selection.add_evaluation(step, {SCORE: value})
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
    truncate(shard(tmp_path / "step-00000004", "model"))
    step, run = load(tmp_path, best=SCORE)
    assert (step, run.checkpoints.selection.step, run.checkpoints.selection.value) == (3, 1, 5.0)
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
    _, run = load(tmp_path, best="held_out_loss")
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


VALUES = {"loss": 0.1, "none": None, "pair": (1, 2), "table": {"b": 1, "a": "é"}}


def test_values_are_read_back_whatever_the_order_of_their_keys(tmp_path):
    path = tmp_path / "values.json"
    write_sealed(path, VALUES)
    assert read_sealed(path) == {**VALUES, "pair": [1, 2]}
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text()).items()))))
    assert read_sealed(path) == {**VALUES, "pair": [1, 2]}


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"loss": 0.1}', b'{"loss": 0.1, "crc32": 1}'])
def test_damaged_values_are_refused_and_lines_of_them_left_out(tmp_path, data):
    path = tmp_path / "values.json"
    path.write_bytes(data)
    with pytest.raises(DamagedError):
        read_sealed(path)
    path.write_bytes(seal_line({"step": 1}) + b'{"step": 3, "crc32": 1}\n' + seal_line({"step": 2})[:-9])
    assert list(read_lines(path)) == [{"step": 1}]


def make_run(directory, updates: int):
    (directory / "checkpoints").mkdir()
    write_sealed(directory / "checkpoints/run.json", {"start": 1})
    keep_start({"step": 0}, directory)
    keep_recipe({"any": 1}, {}, directory)
    (directory / METRICS).write_bytes(b"".join(seal_line({"step": n + 1, "loss": 1.0}) for n in range(updates)))


def test_a_summary_that_is_gone_is_missed_in_a_finished_run(tmp_path):
    make_run(tmp_path, updates=3)
    keep_start({"step": 0, "steps": 3}, tmp_path)
    assert find_faults(tmp_path, 2, None) == []
    assert find_faults(tmp_path, 3, None) == ["summary.json is missing"]
    write_sealed(tmp_path / SUMMARY, {})
    assert find_faults(tmp_path, 3, None) == []


def test_lines_that_are_gone_are_missed(tmp_path):
    make_run(tmp_path, updates=3)
    assert find_faults(tmp_path, 3, None) == []
    assert find_faults(tmp_path, 5, None) == [f"{METRICS}: has no line for update 4 and 1 others"]
    keep_start({"step": 3}, tmp_path)  # killed before the recipe was written again
    assert find_faults(tmp_path, 3, None) == []
    (tmp_path / STARTS).unlink()
    assert find_faults(tmp_path, 3, None) == [f"{STARTS}: holds 0 of 1 starts"]


def test_a_start_deletes_the_summary_and_files_of_another_tokenizer(tmp_path):
    make_run(tmp_path, updates=0)
    write_sealed(tmp_path / SUMMARY, {})
    keep_start({"step": 3}, tmp_path)
    assert not (tmp_path / SUMMARY).exists()
    keep_recipe({}, {"old.json": b"1"}, tmp_path)
    keep_recipe({}, {"new.json": b"2"}, tmp_path)
    assert [path.name for path in (tmp_path / "tokenizer").iterdir()] == ["new.json"]
    keep_recipe({}, {}, tmp_path)
    (tmp_path / "tokenizer").rmdir()
    assert read_tokenizer(tmp_path) is None


def test_a_second_process_is_kept_out_until_the_first_releases(tmp_path):
    first = RunLock(tmp_path / "run")
    assert first.begin() == 1
    with pytest.raises(FarspanError, match=rf"run is in use by process {os.getpid()} on .*; stop it first"):
        RunLock(tmp_path / "run")  # locks of two open files exclude each other, whoever opened them
    first.release()
    second = RunLock(tmp_path / "run")
    assert second.begin() == 2
    assert read_record(tmp_path / "run")["start"] == 2
    second.release()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"5", b'{"start": "1"}', b'{"start": true}', b"\xff"])
def test_an_unreadable_record_counts_from_the_beginning(tmp_path, content):
    (tmp_path / "run.json").write_bytes(content)
    assert read_record(tmp_path) == {}
    lock = RunLock(tmp_path)
    assert lock.begin() == 1
    assert json.loads((tmp_path / "run.json").read_bytes())["process"] == os.getpid()
    lock.release()


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        FarspanError, match=r"directory cannot be written to \(.*file.*; set run.directory to a writable"
    ):
        RunLock(tmp_path / "file" / "run")
