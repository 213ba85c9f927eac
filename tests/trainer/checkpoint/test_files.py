"""Damaged checkpoints are passed over; those of other runs, versions and kinds are refused."""

from __future__ import annotations

import json
import os
import pickle
import shutil

import pytest

from corpora.errors import FarspanError
from tests.trainer.small_run import IDENTITY, Run, flip, load, save, shard, steps, truncate
from trainer.checkpoint.files import MANIFEST, file_facts, find_fault
from trainer.checkpoint.run_files import read_sealed, write_sealed
from trainer.checkpoint.state import load_tensors, stored_tensors


def test_the_manifest_says_what_the_folder_holds(tmp_path):
    path = save(tmp_path, 7)
    manifest = json.loads((path / MANIFEST).read_text())
    assert (manifest["step"], manifest["samples"], manifest["vocabulary"]) == (7, 70, {"size": 5})
    assert manifest["files"] == {
        str(file.relative_to(path)): file_facts(file) for part in ("model", "optimizer") for file in [shard(path, part)]
    }
    assert stored_tensors(path / "model").keys() == Run(tmp_path).model.state_dict().keys()
    assert {name.rsplit(".", 1)[1] for name in stored_tensors(path / "optimizer")} == {"step", "exp_avg", "exp_avg_sq"}


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


def test_another_run_is_refused_showing_both(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(FarspanError, match=r"run.seed: checkpoint 1, now 2"):
        load(tmp_path, identity={**IDENTITY, "run": {"seed": 2}})
    assert load(tmp_path)[0] == 1


def test_another_version_is_refused_by_name(tmp_path):
    path = save(tmp_path, 1) / MANIFEST
    write_sealed(path, {**read_sealed(path), "format_version": 0})
    with pytest.raises(
        FarspanError, match=r"'farspan.checkpoint' version 0; this farspan reads 'farspan.checkpoint' v"
    ):
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
    with pytest.raises(FarspanError, match="holds no tensors that farspan wrote"):
        load(tmp_path)
    with pytest.raises(FarspanError, match="holds no tensors that farspan wrote"):
        load_tensors(path / "model")
