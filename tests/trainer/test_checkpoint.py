"""Checkpoints of one process: equal when loaded, whole or not there, and never another run's."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import shutil
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import Adafactor, Adam, AdamW

import trainer.checkpoint
from corpora.errors import FarspanError
from trainer.checkpoint import CheckpointConfig, Checkpoints
from trainer.checkpoint_files import MANIFEST, file_facts, find_fault
from trainer.distributed import Ranks
from trainer.state import load_tensors, stored_tensors

IDENTITY = {"run": {"seed": 1}, "betas": (0.9, 0.98)}


class Run:
    """A model that learns, its optimiser, and the checkpoints of ``directory``."""

    def __init__(self, directory, kind=AdamW, identity=IDENTITY, **config):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 2))
        self.optimizer = kind(self.model.parameters(), lr=0.1)
        self.said = []
        config = CheckpointConfig(**{"asynchronous": False, **config})
        self.checkpoints = Checkpoints(directory, config, Ranks.alone(), identity, {"size": 5}, self.said.append)

    def restore(self):
        return self.checkpoints.restore(self.model, self.optimizer)

    def update(self, number):
        torch.manual_seed(number)
        self.model(torch.randn(3, 5)).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self, step):
        return self.checkpoints.save(step, 10 * step, self.model, self.optimizer)

    def states(self):
        return [*self.model.state_dict().values(), *(v for of in self.optimizer.state.values() for v in of.values())]


def save(directory, step, **config):
    """A start of the run that makes one update and the checkpoint of ``step``."""
    run = Run(directory, **config)
    with run.checkpoints:
        run.restore()
        run.update(step)
        return run.save(step)


def load(directory, **options):
    run = Run(directory, **options)
    with run.checkpoints:
        return run.restore(), run


def steps(directory):
    return sorted(path.name for path in directory.glob("step-*"))


def shard(path, part):
    (file,) = (path / part).iterdir()
    return file


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("kind", [AdamW, Adam, Adafactor])
def test_what_goes_on_is_what_was_saved(tmp_path, kind, asynchronous):
    straight = Run(tmp_path, kind, asynchronous=asynchronous)
    assert straight.restore() is None
    for number in range(3):
        straight.update(number)
    straight.save(3)
    straight.checkpoints.finish()
    step, resumed = load(tmp_path, kind=kind)
    assert (step, resumed.said) == (3, [])
    for found, expected in zip(resumed.states(), straight.states(), strict=True):
        assert torch.equal(found, expected)
    for run in (straight, resumed):
        run.update(3)
    for found, expected in zip(resumed.states(), straight.states(), strict=True):
        assert torch.equal(found, expected)


def test_the_manifest_says_what_the_folder_holds(tmp_path):
    path = save(tmp_path, 7)
    manifest = json.loads((path / MANIFEST).read_text())
    assert (manifest["step"], manifest["samples"], manifest["vocabulary"]) == (7, 70, {"size": 5})
    assert manifest["files"] == {
        str(file.relative_to(path)): file_facts(file) for part in ("model", "optimizer") for file in [shard(path, part)]
    }
    assert stored_tensors(path / "model").keys() == Run(tmp_path).model.state_dict().keys()
    assert {name.rsplit(".", 1)[1] for name in stored_tensors(path / "optimizer")} == {"step", "exp_avg", "exp_avg_sq"}


def test_an_optimiser_that_made_no_step_stays_new(tmp_path):
    """As after a first update that was skipped: a step of nothing would change Adam's corrections."""
    run = Run(tmp_path)
    with run.checkpoints:
        run.restore()
        run.save(1)
    assert not run.optimizer.state
    step, resumed = load(tmp_path)
    assert step == 1
    assert not resumed.optimizer.state


def test_a_parameter_without_state_stays_without(tmp_path):
    run = Run(tmp_path)
    with run.checkpoints:
        run.restore()
        run.model[0](torch.ones(1, 5)).sum().backward()
        run.optimizer.step()
        run.save(1)
    _, resumed = load(tmp_path)
    assert [p.shape for p in resumed.optimizer.state] == [p.shape for p in run.optimizer.state] == [(4, 5), (4,)]


def test_the_state_is_copied_before_training_goes_on(tmp_path, monkeypatch):
    moved, write = threading.Event(), trainer.checkpoint.write_tensors

    def write_later(*arguments):
        assert moved.wait(30)
        write(*arguments)

    monkeypatch.setattr(trainer.checkpoint, "write_tensors", write_later)
    run = Run(tmp_path, asynchronous=True)
    run.restore()
    run.update(0)
    expected = [value.clone() for value in run.states()]
    path = run.save(1)
    run.update(1)
    assert not path.exists()
    moved.set()
    run.checkpoints.finish()
    for found, value in zip(load(tmp_path)[1].states(), expected, strict=True):
        assert torch.equal(found, value)


@pytest.mark.parametrize(
    ("config", "left"),
    [
        ({"keep": 1}, [9]),
        ({"keep": 2}, [8, 9]),
        ({"keep": 2, "keep_every": 3}, [3, 6, 8, 9]),
        ({"keep": 9}, list(range(1, 10))),
    ],
)
def test_the_newest_stay_and_every_nth(tmp_path, config, left):
    run = Run(tmp_path, **config)
    with run.checkpoints:
        run.restore()
        for step in range(1, 10):
            run.save(step)
    assert steps(tmp_path) == [f"step-{step:08d}" for step in left]
    assert sorted(os.listdir(tmp_path)) == sorted(["run.json", "run.lock", *steps(tmp_path)])


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux which file a number stands for")
def test_all_is_on_the_disk_before_the_folder_has_its_name(tmp_path, monkeypatch):
    synced, fsync, rename = [], os.fsync, os.replace

    def noted(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def renamed(source, target):
        if Path(target).name == "step-00000001":
            for path in (Path(source), *Path(source).rglob("*")):
                known = [name for name in synced if name.startswith(str(path))]  # a file may be written as NAME.tmp
                assert str(path) in known or (known and path.is_file()), path
            synced.clear()
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", renamed)
    save(tmp_path, 1)
    assert str(tmp_path) in synced  # the name itself


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
    [
        {"files": None},
        {"files": ["model"]},
        {"files": {"model/x": 5}},
        {"identity": 5},
        {"step": "2"},
        {"step": 20},
    ],
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
    assert f"({part}/more.safetensors is no file of it)" in run.said[0]


def test_a_file_in_the_place_of_a_checkpoint_is_replaced(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "step-00000002").write_text("")
    (tmp_path / "step-00000003.tmp-1").write_text("")
    save(tmp_path, 2)
    assert load(tmp_path)[0] == 2
    assert steps(tmp_path) == ["step-00000001", "step-00000002"]


@pytest.mark.parametrize("record", ["[]", "5", '{"start": "x"}', "{"])
def test_a_record_of_starts_that_cannot_be_read_is_begun_anew(tmp_path, record):
    save(tmp_path, 1)
    (tmp_path / "run.json").write_text(record)
    assert load(tmp_path)[0] == 1


def test_a_directory_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FarspanError, match=r"cannot be written to .*file/checkpoints.*; set run.directory to a folder"):
        load(tmp_path / "file" / "checkpoints")


def test_damage_costs_no_good_checkpoint(tmp_path):
    """What is damaged counts for nothing in what is kept."""
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


@pytest.mark.parametrize("moment", ["files", "manifest", "rename", "retention"])
def test_killed_while_writing(tmp_path, monkeypatch, moment):
    """Before the files are whole, just before the rename, while deleting: one checkpoint stands, the rest is swept."""
    save(tmp_path, 1)

    def die(*_):
        raise KeyboardInterrupt

    def die_renaming(source, target, replace=os.replace):
        if str(target).endswith("step-00000002"):
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched:
        match moment:
            case "files":
                patched.setattr(trainer.checkpoint, "file_facts", die)
            case "manifest":
                patched.setattr(trainer.checkpoint, "write_bytes", die)
            case "rename":
                patched.setattr(os, "replace", die_renaming)
            case "retention":
                patched.setattr(shutil, "rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 2, keep=1)
    assert load(tmp_path)[0] == (2 if moment == "retention" else 1)
    save(tmp_path, 3, keep=1)
    assert sorted(os.listdir(tmp_path)) == ["run.json", "run.lock", "step-00000003"]


def test_another_run_is_refused_showing_both(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(FarspanError, match=r"run.seed: checkpoint 1, now 2"):
        load(tmp_path, identity={**IDENTITY, "run": {"seed": 2}})
    assert load(tmp_path)[0] == 1


def test_another_version_is_refused_by_name(tmp_path):
    path = save(tmp_path, 1) / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 1}))
    with pytest.raises(
        FarspanError, match=r"'farspan.checkpoint' version 1; this farspan reads 'farspan.checkpoint' v"
    ):
        load(tmp_path)


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize(("part", "value"), [("weights", float("nan")), ("optimizer", float("inf"))])
def test_values_that_are_not_finite_are_never_written(tmp_path, part, value, asynchronous):
    save(tmp_path, 1)
    run = Run(tmp_path, asynchronous=asynchronous)
    with run.checkpoints:
        run.restore()
        run.update(2)
        with torch.no_grad():
            first = run.model[2].weight
            (first if part == "weights" else run.optimizer.state[first]["exp_avg_sq"])[1, 2] = value
        with pytest.raises(FarspanError, match=r"after step 2, .*2.weight.* not finite; .* newest is step-00000001;"):
            run.save(2)
    assert steps(tmp_path) == ["step-00000001"]


def test_two_at_once_are_refused(tmp_path):
    run = Run(tmp_path)
    with run.checkpoints:
        run.restore()
        with pytest.raises(FarspanError, match=rf"in use by process {os.getpid()} on .+; stop it first"):
            load(tmp_path)
        run.save(1)
    assert load(tmp_path)[0] == 1


@pytest.mark.parametrize("asynchronous", [True, False])
def test_without_locks_the_older_one_stops(tmp_path, monkeypatch, asynchronous):
    def no_locks(*_):
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    older = Run(tmp_path, asynchronous=asynchronous)
    older.restore()
    older.save(1)
    older.checkpoints._wait()
    step, _ = load(tmp_path)
    assert step == 1
    with pytest.raises(FarspanError, match=r"taken over by process \d+ on .+, which began later"):
        older.save(2)
    older.checkpoints.finish()
    assert steps(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_full_disk_is_an_error_of_the_run(tmp_path, monkeypatch, asynchronous):
    run = Run(tmp_path, asynchronous=asynchronous)
    run.restore()
    run.save(1)
    run.checkpoints._wait()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save", full)
    with pytest.raises(FarspanError, match=r"step 2 could not be written to .*No space left on device.*; make room"):
        run.save(2)
        run.checkpoints.finish()
    run.checkpoints.finish()
    assert load(tmp_path)[0] == 1


def test_no_code_is_loaded(tmp_path):
    """A file with the right hash that holds a pickled object is refused, not opened."""
    path = save(tmp_path, 1)
    file = shard(path, "model")
    file.write_bytes(pickle.dumps(find_fault))
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["files"][str(file.relative_to(path))] = file_facts(file)
    (path / MANIFEST).write_text(json.dumps(manifest))
    assert find_fault(path) is None
    with pytest.raises(FarspanError, match="holds no tensors that farspan wrote"):
        load(tmp_path)
    with pytest.raises(FarspanError, match="holds no tensors that farspan wrote"):
        load_tensors(path / "model")


def test_a_model_that_is_built_otherwise_is_refused(tmp_path):
    save(tmp_path, 1)
    run = Run(tmp_path)
    run.model = nn.Sequential(nn.Linear(5, 3), nn.LayerNorm(4), nn.Linear(4, 2), nn.Linear(2, 2))
    with (
        run.checkpoints,
        pytest.raises(FarspanError, match=r"3.bias, 3.weight, 0.bias of shape \[4\], not \[3\] \.\.\."),
    ):
        run.restore()


def test_weights_are_read_without_the_run(tmp_path):
    run = Run(tmp_path)
    with run.checkpoints:
        run.restore()
        path = Path(run.save(4))
    found = load_tensors(path / "model")
    assert found.keys() == run.model.state_dict().keys()
    assert all(torch.equal(found[name], value) for name, value in run.model.state_dict().items())
