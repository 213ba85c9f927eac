"""Checkpoints of one process: equal when loaded, whole or not there, written by one at a time."""

import fcntl
import os
import shutil
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from torch.optim import Adafactor, Adam, AdamW

import trainer.checkpoint.checkpoints
from corpora.errors import FarspanError
from tests.trainer.small_run import Run, load, save, steps
from trainer.checkpoint.state import write_tensors


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
    torch.testing.assert_close(resumed.states(), straight.states(), rtol=0, atol=0)
    for run in (straight, resumed):
        run.update(3)
    torch.testing.assert_close(resumed.states(), straight.states(), rtol=0, atol=0)


@pytest.mark.parametrize("shapes", [[], [(4, 5), (4,)]])
def test_a_parameter_without_state_stays_without(tmp_path, shapes):
    """All of them after a first update that was skipped: a step of nothing would change Adam's corrections."""
    run = Run(tmp_path)
    with run.checkpoints:
        run.restore()
        if shapes:
            run.model[0](torch.ones(1, 5)).sum().backward()
            run.optimizer.step()
        run.save(1)
    step, resumed = load(tmp_path)
    assert step == 1
    assert [p.shape for p in resumed.optimizer.state] == [p.shape for p in run.optimizer.state] == shapes


def test_the_state_is_copied_before_training_goes_on(tmp_path, monkeypatch):
    moved, write = threading.Event(), write_tensors

    def write_later(*arguments):
        assert moved.wait(30)
        write(*arguments)

    monkeypatch.setattr(trainer.checkpoint.checkpoints, "write_tensors", write_later)
    run = Run(tmp_path, asynchronous=True)
    run.restore()
    run.update(0)
    expected = [value.clone() for value in run.states()]
    path = run.save(1)
    run.update(1)
    assert not path.exists()
    moved.set()
    run.checkpoints.finish()
    torch.testing.assert_close(load(tmp_path)[1].states(), expected, rtol=0, atol=0)


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


@pytest.mark.parametrize("moment", ["files", "manifest", "rename", "retention"])
def test_killed_while_writing(tmp_path, monkeypatch, moment):
    """Before the files are whole, just before the rename, while deleting: one checkpoint stands, the rest is swept."""
    save(tmp_path, 1)

    die = Mock(side_effect=KeyboardInterrupt)

    def die_renaming(source, target, replace=os.replace):
        if str(target).endswith("step-00000002"):
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched:
        match moment:
            case "files":
                patched.setattr(trainer.checkpoint.checkpoints, "file_facts", die)
            case "manifest":
                patched.setattr(trainer.checkpoint.checkpoints, "write_sealed", die)
            case "rename":
                patched.setattr(os, "replace", die_renaming)
            case "retention":
                patched.setattr(shutil, "rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 2, keep=1)
    assert load(tmp_path)[0] == (2 if moment == "retention" else 1)
    save(tmp_path, 3, keep=1)
    assert sorted(os.listdir(tmp_path)) == ["run.json", "run.lock", "step-00000003"]


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize(("part", "value"), [("weights", float("nan")), ("optimizer", float("inf"))])
def test_values_that_are_not_finite_are_never_written(tmp_path, part, value, asynchronous):
    save(tmp_path, 1)
    run = Run(tmp_path, asynchronous=asynchronous)
    with run.checkpoints:
        run.restore()
        run.update(2)
        with torch.no_grad():
            first: Any = run.model[2].weight
            (first if part == "weights" else run.optimizer.state[first]["exp_avg_sq"])[1, 2] = value
        with pytest.raises(FarspanError, match=r"after step 2, .*2.weight.* not finite; .* newest is step-00000001;"):
            run.save(2)
    assert steps(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_without_locks_the_older_one_stops(tmp_path, monkeypatch, asynchronous):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError("no locks available")))
    older = Run(tmp_path, asynchronous=asynchronous)
    older.restore()
    older.save(1)
    older.checkpoints._wait()
    step, _ = load(tmp_path)
    assert step == 1
    with pytest.raises(FarspanError, match=r"taken over by process \d+ on .+, which started later"):
        older.save(2)
    older.checkpoints.finish()
    assert steps(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_full_disk_is_an_error_of_the_run(tmp_path, monkeypatch, asynchronous):
    run = Run(tmp_path, asynchronous=asynchronous)
    run.restore()
    run.save(1)
    run.checkpoints._wait()
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("safetensors.torch.save", Mock(side_effect=full))
    with pytest.raises(FarspanError, match=r"step 2 could not be written to .*No space left on device.*; make room"):
        run.save(2)
        run.checkpoints.finish()
    run.checkpoints.finish()
    assert load(tmp_path)[0] == 1


def test_a_model_that_is_built_otherwise_is_refused(tmp_path):
    save(tmp_path, 1)
    run = Run(tmp_path)
    run.model = nn.Sequential(nn.Linear(5, 3), nn.LayerNorm(4), nn.Linear(4, 2), nn.Linear(2, 2))
    refused = pytest.raises(FarspanError, match=r"3.bias, 3.weight, 0.bias of shape \[4\], not \[3\] \.\.\.")
    with run.checkpoints, refused:
        run.restore()
