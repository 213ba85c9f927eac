from __future__ import annotations

import json
import os

import pytest
import torch

from corpora.errors import FarspanError
from trainer.checkpoint import find_fault, load_newest, save_checkpoint

IDENTITY = {"run": {"seed": 1}, "betas": (0.9, 0.98)}


def save(directory, step, keep=3):
    states = {"model": {"w": torch.full((3,), float(step))}, "optimizer": {"state": {}, "step": step}}
    return save_checkpoint(directory, step, 10 * step, IDENTITY, states, keep)


def load(directory, identity=IDENTITY):
    said = []
    return load_newest(directory, identity, said.append), said


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_what_is_saved_is_loaded(tmp_path):
    assert load(tmp_path) == (None, [])
    path = save(tmp_path, 7)
    found, said = load(tmp_path)
    assert (found.path, found.step, found.samples, said) == (path, 7, 70, [])
    assert torch.equal(found.model["w"], torch.full((3,), 7.0))
    assert found.optimizer == {"state": {}, "step": 7}


def test_the_newest_stay(tmp_path):
    for step in (8, 9, 10, 100):
        save(tmp_path, step, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010", "step-00000100"]


@pytest.mark.parametrize("damage", [truncate, flip, os.remove])
@pytest.mark.parametrize("name", ["model.pt", "optimizer.pt", "checkpoint.json"])
def test_a_damaged_checkpoint_is_passed_over_and_replaced(tmp_path, damage, name):
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    if name == "checkpoint.json" and damage is flip:
        (newest / name).write_text("[]")
    else:
        damage(newest / name)
    found, said = load(tmp_path)
    assert found.step == 1
    assert len(said) == 1
    assert str(newest) in said[0]
    assert name in said[0]
    save(tmp_path, 2)
    assert load(tmp_path)[0].step == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_but_damage_is_no_fresh_start(tmp_path):
    truncate(save(tmp_path, 1) / "model.pt")
    with pytest.raises(FarspanError, match="all 1 checkpoints"):
        load(tmp_path)


@pytest.mark.parametrize("call", ["torch.save", "os.replace"])
def test_killed_while_writing(tmp_path, monkeypatch, call):
    """Whether before the files are whole or just before the rename: the old checkpoint stands, the rest is swept."""
    save(tmp_path, 1)
    replace = os.replace

    def die(source, target, *rest):
        if call == "torch.save" or str(target).endswith("step-00000002"):
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(call, die)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 2, keep=1)
    assert load(tmp_path)[0].step == 1
    assert len(list(tmp_path.iterdir())) == 2
    save(tmp_path, 2, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


def test_another_run_is_refused_showing_both(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(FarspanError, match=r"run.seed: checkpoint 1, now 2"):
        load(tmp_path, {**IDENTITY, "run": {"seed": 2}})


def test_another_version_is_refused_by_name(tmp_path):
    path = save(tmp_path, 1) / "checkpoint.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 2}))
    with pytest.raises(FarspanError, match=r"'farspan.checkpoint' version 2; this farspan reads"):
        load(tmp_path)


def test_no_code_is_loaded(tmp_path):
    """A checkpoint whose hashes are right but which holds a pickled object is refused by the loader."""
    path = save_checkpoint(tmp_path, 1, 1, IDENTITY, {"model": {"w": find_fault}, "optimizer": {}}, 1)
    assert find_fault(path) is None
    with pytest.raises(FarspanError, match="holds more than tensors"):
        load(tmp_path)
