"""Tests of the files beside the checkpoints, and of the model read from a checkpoint."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from corpora.errors import FarspanError
from objectives.api.examples import Examples
from tests.trainer.toy import SPECIAL, ToySource, toy_recipe, weights_of
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
from trainer.checkpoint.trained_model import find_trained, vocabulary_of
from trainer.run.train import train

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


def test_without_locks_the_older_process_stops(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    first, second = RunLock(tmp_path), RunLock(tmp_path)
    first.begin()
    first.require_newest()
    second.begin()
    with pytest.raises(FarspanError, match=r"was taken over by process \d+ on .*, which started later"):
        first.require_newest()
    second.require_newest()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"start": "1"}', b'{"start": true}', b"\xff"])
def test_an_unreadable_record_counts_from_the_beginning(tmp_path, content):
    (tmp_path / "run.json").write_bytes(content)
    assert read_record(tmp_path) == {}
    lock = RunLock(tmp_path)
    assert lock.begin() == 1
    assert json.loads((tmp_path / "run.json").read_bytes())["process"] == os.getpid()
    lock.release()


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FarspanError, match=r"the run's directory cannot be written to \(.*file"):
        RunLock(tmp_path / "file" / "run")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A recipe and the folder of its run, with checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("trained")
    recipe = toy_recipe(folder, checkpoint_every=1, dry_run=False)
    train(recipe, source=ToySource(), until=2, console=Console(file=StringIO()))
    return recipe, folder


@pytest.fixture
def copied(made, tmp_path) -> Path:
    return shutil.copytree(made[1], tmp_path / "run")


def manifests(run: Path) -> list[Path]:
    return sorted(run.glob("checkpoints/step-*/checkpoint.json"))


def test_the_newest_checkpoint_describes_the_model_and_holds_its_weights(made):
    recipe, folder = made
    found = find_trained(folder)
    assert found.path.name == "step-00000002"
    assert found.config == recipe.model
    assert found.tokenizer_fingerprint == "toy tokenizer"
    assert found.special.vocab_size == SPECIAL.vocab_size
    assert "<bos>" not in found.special.ids  # no text of the toy source is framed
    weights = found.weights()
    expected = weights_of(recipe)
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    first = find_trained(folder / "checkpoints/step-00000001")
    assert first.weights_sha256 != found.weights_sha256 == find_trained(folder).weights_sha256


def test_a_damaged_checkpoint_is_passed_over_and_named_if_there_is_no_other(copied):
    first, second = manifests(copied)
    second.write_text("{")
    assert find_trained(copied).path == first.parent
    values = read_sealed(first)
    write_sealed(first, {**values, "vocabulary": {**values["vocabulary"], "size": 0}})
    with pytest.raises(FarspanError, match=r"no readable checkpoint \(step-00000002: .*; step-00000001: checkpoint"):
        find_trained(copied)


@pytest.mark.parametrize("key", ["vocabulary", "selection"])
def test_a_checkpoint_without_a_key_is_damaged(copied, key):
    for path in manifests(copied):
        values = read_sealed(path)
        del values[key]
        write_sealed(path, values)
    with pytest.raises(FarspanError, match=rf"no readable checkpoint \(.*{key}"):
        find_trained(copied)


def test_a_folder_without_checkpoints_is_named(tmp_path):
    with pytest.raises(FarspanError, match=r"no readable checkpoint \(none at all\); name another run"):
        find_trained(tmp_path)


def test_weights_that_a_checkpoint_does_not_name_are_not_read(copied):
    trained = find_trained(copied)
    (weights,) = (trained.path / "model").iterdir()
    shutil.copy(weights, weights.with_name("a.safetensors"))
    with pytest.raises(FarspanError, match=r"is damaged \(model/a.safetensors is not in the manifest\)"):
        trained.weights()


@pytest.mark.parametrize(
    ("text", "frame"),
    [([1, 9, 2], ["<bos>", "<eos>"]), ([9, 2], ["<eos>"]), ([1, 9], ["<bos>"]), ([9, 1, 2, 9], []), ([2, 9, 1], [])],
)
def test_the_frame_is_what_the_text_begins_and_ends_with(text, frame):
    """Padding behind it is no part of it."""
    shown = Examples(
        sequence_ids=np.zeros((1, 16), np.uint8), source_ids=np.array([[*text, 0, 0]], np.int32),
        source_lengths=np.array([len(text)], np.int32), target_ids=np.zeros((1, 0), np.int32),
        target_lengths=np.zeros(1, np.int32),
    )  # fmt: skip
    found = vocabulary_of("fingerprint", SPECIAL, shown)
    assert found["frame"] == frame
    assert found["special_tokens"] == dict(SPECIAL.ids)
    assert (found["size"], found["tokenizer_fingerprint"]) == (SPECIAL.vocab_size, "fingerprint")
