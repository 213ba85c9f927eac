"""Checksums of the files of a run; every file of a real run is damaged in the tests of `farspan verify`."""

from __future__ import annotations

import fcntl
import json
import os

import pytest

from corpora.errors import FarspanError
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


# The lock of a run's directory


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
