"""The lock of a run's directory."""

from __future__ import annotations

import fcntl
import json
import os

import pytest

from corpora.errors import FarspanError
from trainer.checkpoint.run_files import RunLock, read_record


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
