"""Files on this machine's disk: whole or not there."""

from __future__ import annotations

import errno
import os

import pytest

from corpora.storage import files
from corpora.storage.files import read_bytes, sweep, write_bytes
from corpora.storage.temporary import is_temporary, temporary_name


def test_a_file_appears_whole_in_folders_that_are_made(tmp_path):
    path = str(tmp_path / "a" / "b" / "c")
    with files.create(path) as file:
        file.write(b"some")
        assert not files.exists(path)
        file.write(b"thing")
    assert (read_bytes(path), files.size(path), files.walk(str(tmp_path))) == (b"something", 9, [path])


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_bytes(pipe, b"some")
    assert os.read(reader, 10) == b"some"
    os.close(reader)
    assert os.listdir(tmp_path) == ["pipe"]


def test_an_open_file_is_written_to_by_its_number(tmp_path):
    with open(tmp_path / "a", "w+b") as file:
        write_bytes(f"/dev/fd/{file.fileno()}", b"some")
    write_bytes("/dev/null", b"nothing")
    assert (tmp_path / "a").read_bytes() == b"some"


@pytest.mark.parametrize("failure", [KeyError, KeyboardInterrupt])
def test_a_writer_that_fails_changes_nothing(tmp_path, failure):
    write_bytes(str(tmp_path / "a"), b"before")
    for name in ("a", "b"):
        with pytest.raises(failure), files.create(str(tmp_path / name)) as file:
            file.write(b"half")
            raise failure
    assert os.listdir(tmp_path) == ["a"]
    assert read_bytes(str(tmp_path / "a")) == b"before"


def test_a_full_disk_is_told_with_the_files_own_name(tmp_path, monkeypatch):
    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_bytes(str(tmp_path / "a"), b"x")
    assert caught.value.filename == str(tmp_path / "a")
    assert os.listdir(tmp_path) == []


def test_files_reach_the_disk_before_their_name(tmp_path, monkeypatch):
    order = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (order.append("fsync"), sync(number)))
    monkeypatch.setattr(os, "replace", lambda *names: (order.append("replace"), replace(*names)))
    write_bytes(str(tmp_path / "a"), b"x")
    assert order == ["fsync", "replace"]


def test_sweeping_takes_temporary_files_alone(tmp_path):
    for name in ("a", "b/c", temporary_name("b/d"), temporary_name("e")):
        write_bytes(str(tmp_path / name), b"x")
    sweep(str(tmp_path))
    left = [os.path.relpath(path, tmp_path) for path in files.walk(str(tmp_path))]
    assert left == ["a", "b/c"]
    assert not any(map(is_temporary, left))


def test_deleting_passes_over_what_is_gone(tmp_path):
    write_bytes(str(tmp_path / "a"), b"x")
    files.delete([str(tmp_path / "gone"), str(tmp_path / "a")])
    files.delete([])
    assert files.walk(str(tmp_path)) == []
    assert files.walk(str(tmp_path / "none")) == []


@pytest.mark.parametrize(("path", "local"), [("a/b", True), ("/a", True), ("s3://a/b", False), ("hdfs:///a", False)])
def test_what_is_local(path, local):
    assert files.is_local(path) == local


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_is_not_to_be_replaced_stays_there(tmp_path, monkeypatch, links):
    """A file system without hard links replaces it."""
    path, asked = str(tmp_path / "a"), []

    def refuse() -> None:
        asked.append(read_bytes(path))
        raise KeyError("taken")

    def no_link(*names):
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    with files.published(lambda: None, refuse):
        for _ in range(2):
            write_bytes(path, b"first")
        if links:
            with pytest.raises(KeyError):
                write_bytes(path, b"other")
        else:
            write_bytes(path, b"other")
    assert (asked, read_bytes(path)) == (([b"first"], b"first") if links else ([], b"other"))
    with files.published(lambda: None, lambda: asked.append(b"replaced")):
        write_bytes(path, b"third")
    assert read_bytes(path) == b"third"
    assert os.listdir(tmp_path) == ["a"]
