"""Uploads: a file appears when it is complete, on stores that publish half files or never rename onto one, too."""

from __future__ import annotations

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.stores import publishing, remote


def test_a_file_is_replaced_as_a_whole(root):
    for data in (b"before", b"", bytes(3 * remote.BUFFER)):
        write_bytes(f"{root}/a", data)
        assert read_bytes(f"{root}/a") == data
    assert files.walk(root) == [f"{root}/a"]


def test_a_writer_that_fails_changes_nothing(root):
    write_bytes(f"{root}/a", b"before")
    for name in ("a", "b"):
        with pytest.raises(KeyError), files.create(f"{root}/{name}") as file:
            file.write(b"half")
            raise KeyError
    assert files.walk(root) == [f"{root}/a"]
    assert read_bytes(f"{root}/a") == b"before"


def test_an_upload_that_breaks_off_shows_nothing(root, monkeypatch):
    write_bytes(f"{root}/a", b"before")
    monkeypatch.setattr(publishing, "_UPLOAD", 4)

    def move(*_):
        raise OSError("the line is dead")

    monkeypatch.setattr(MemoryFileSystem, "cp_file", move)
    with pytest.raises(FarspanError, match=r"://folder/a: the line is dead; finished work is kept: try again"):
        write_bytes(f"{root}/a", b"something new")
    assert files.walk(root) == [f"{root}/a"]
    assert read_bytes(f"{root}/a") == b"before"


class Hadoop(MemoryFileSystem):
    """``hadoop://``: as HDFS does, never renames onto a file."""

    protocol = "hadoop"
    store: dict = {}  # noqa: RUF012 (as its base class has it)
    pseudo_dirs = [""]  # noqa: RUF012 (as its base class has it)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("hadoop:/"))

    def mv(self, path1, path2, **options):
        if self.exists(path2):
            raise OSError(f"HDFS rename failed: {path2} exists")
        self.moves = [*getattr(self, "moves", ()), path2]
        super().mv(path1, path2, **options)


@pytest.fixture
def hadoop():
    """A store that never renames onto a file, and a folder on it."""
    fsspec.register_implementation("hadoop", Hadoop, clobber=True)
    system = fsspec.filesystem("hadoop")
    system.store.clear()
    system.moves = []
    return system, "hadoop://folder"


def test_a_store_that_never_renames_onto_a_file_takes_a_second_attempt(hadoop):
    system, folder = hadoop
    data = bytes(3 * remote.BUFFER)
    for _ in range(2):
        write_bytes(f"{folder}/a", data)
    assert len(system.moves) == 1  # the equal file is kept
    write_bytes(f"{folder}/a", b"another")
    assert system.moves[-1] == "/folder/a"
    assert read_bytes(f"{folder}/a") == b"another"
    assert files.walk(folder) == [f"{folder}/a"]


def test_a_file_that_is_not_to_be_replaced_stays_there(hadoop):
    system, folder = hadoop

    def refuse() -> None:
        raise KeyError("taken")

    with files.published(lambda: None, refuse):
        for _ in range(2):
            write_bytes(f"{folder}/a", b"first")
        with pytest.raises(KeyError):
            write_bytes(f"{folder}/a", b"second")
    assert system.moves == ["/folder/a"]
    assert read_bytes(f"{folder}/a") == b"first"
    assert files.walk(folder) == [f"{folder}/a"]


def test_a_refused_rename_is_reported(hadoop, monkeypatch):
    system, folder = hadoop
    monkeypatch.setattr(type(system), "mv", lambda self, a, b, **options: (_ for _ in ()).throw(OSError("no rights")))
    with pytest.raises(FarspanError, match=r"hadoop://folder/a: no rights"):
        write_bytes(f"{folder}/a", b"x")
    assert files.walk(folder) == []
