"""Files by path, on this machine's disk: whole or not there; files that users name."""

from __future__ import annotations

import errno
import hashlib
import io
import os

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import CountingHash, read_bytes, sweep, write_bytes
from corpora.storage.stores.local_disk import is_temporary, temporary_name
from corpora.storage.user_files import read_user_file, read_user_json, read_user_toml


@pytest.mark.parametrize(("path", "local"), [("/a/b", True), ("a:b", True), ("s3://a/b", False), ("memory://", False)])
def test_a_scheme_makes_a_path_remote(path, local):
    assert files.is_local(path) == local


def test_a_file_appears_when_its_writer_ends_well(tmp_path):
    path = str(tmp_path / "new" / "file")
    with pytest.raises(RuntimeError), files.create(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert not files.exists(path)
    with files.create(path) as file:
        file.write(b"whole")
        assert not files.exists(path)
    assert (files.read_bytes(path), files.size(path)) == (b"whole", 5)
    assert files.names(str(tmp_path / "new")) == ["file"]


def test_a_check_before_publishing_keeps_a_file_back(tmp_path):
    path, calls = str(tmp_path / "file"), []

    def refuse() -> None:
        calls.append(files.exists(path))
        raise RuntimeError("lost the lock")

    with pytest.raises(RuntimeError, match="lost the lock"), files.guard_creation(refuse):
        files.write_bytes(path, b"data")
    assert calls == [False]
    assert files.walk(str(tmp_path)) == []
    files.write_bytes(path, b"data")  # the check ended with its block
    assert files.read_bytes(path) == b"data"


def test_one_of_several_creates_a_file(tmp_path):
    path = str(tmp_path / "lock")
    assert files.create_new(path, b"first")
    assert not files.create_new(path, b"second")
    assert files.read_bytes(path) == b"first"
    assert files.renew(path, b"third")
    assert files.read_bytes(path) == b"third"
    files.delete([path, path])
    assert not files.renew(path, b"third")
    assert not os.path.exists(path)
    files.delete([])


def test_a_sweep_deletes_temporary_files_alone(tmp_path):
    kept = [str(tmp_path / "a"), str(tmp_path / "b" / "c")]
    for path in kept:
        files.write_bytes(path, b"")
        files.write_bytes(temporary_name(path), b"half")
    assert len(files.walk(str(tmp_path))) == 4
    files.sweep(str(tmp_path))
    assert files.walk(str(tmp_path)) == sorted(kept)
    assert files.match(str(tmp_path / "*")) == [kept[0]]


def test_what_is_written_is_hashed_and_counted():
    sink = io.BytesIO()
    hashed = CountingHash(sink)
    assert hashed.write(b"abc") == 3
    numbers = np.arange(4, dtype=np.int32)
    assert hashed.write(memoryview(numbers)) == 16
    hashed.flush()
    assert (hashed.bytes, hashed.closed) == (19, False)
    assert sink.getvalue() == b"abc" + numbers.tobytes()
    assert hashed.sha256() == hashlib.sha256(sink.getvalue()).hexdigest()


def test_values_come_back(tmp_path):
    (tmp_path / "a.json").write_text('{"b": 1, "b": [2]}')
    (tmp_path / "a.toml").write_text("a = 'é'\n", "utf-8")
    assert read_user_file(tmp_path / "a.toml") == "a = 'é'\n".encode()
    assert read_user_json(str(tmp_path / "a.json")) == {"b": [2]}
    assert read_user_json(tmp_path / "a.json", pairs=tuple) == (("b", 1), ("b", [2]))
    assert read_user_toml(tmp_path / "a.toml") == {"a": "é"}


@pytest.mark.parametrize("read", [read_user_file, read_user_json, read_user_toml])
def test_what_is_no_regular_file_is_refused(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    places = {"pipe": "a named pipe, not", "link": "a named pipe, not", "gone": "No such file", ".": "a folder, not"}
    for path, reason in {
        **{tmp_path / name: reason for name, reason in places.items()},
        "/dev/zero": "a device",
    }.items():
        with pytest.raises(FarspanError, match=rf"^{path}: {reason}.*; give a regular file"):
            read(path)


@pytest.mark.parametrize(
    ("read", "data", "reason"),
    [
        (read_user_json, b"[" * 100_000, "brackets are nested too deep"),
        (read_user_json, b'{"a":' * 100_000, "brackets are nested too deep"),
        (read_user_json, b"1" * 5000, "not JSON: .*digits"),
        (read_user_json, b"\xff", "not JSON"),
        (read_user_toml, b"a = " + b"[" * 100_000, "brackets are nested too deep"),
        (read_user_toml, b"a = " + b"1" * 5000, "not TOML: .*digits"),
        (read_user_toml, b"a = '\xff'", "not TOML"),
    ],
)
def test_what_cannot_be_parsed_is_refused(tmp_path, read, data, reason):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(FarspanError, match=rf"^{tmp_path}/a: .*{reason}") as error:
        read(tmp_path / "a")
    assert "\n" not in str(error.value)


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
    with files.guard_creation(lambda: None, refuse):
        for _ in range(2):
            write_bytes(path, b"first")
        if links:
            with pytest.raises(KeyError):
                write_bytes(path, b"other")
        else:
            write_bytes(path, b"other")
    assert (asked, read_bytes(path)) == (([b"first"], b"first") if links else ([], b"other"))
    with files.guard_creation(lambda: None, lambda: asked.append(b"replaced")):
        write_bytes(path, b"third")
    assert read_bytes(path) == b"third"
    assert os.listdir(tmp_path) == ["a"]
