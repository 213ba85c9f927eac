"""Exclusive creation and times on stores other than S3: one creator, and an error where the store cannot."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

from corpora.storage.stores.exclusive import Unsupported, create_new, modified


@pytest.fixture
def memory():
    """The file system of ``memory://``, empty."""
    MemoryFileSystem.store.clear()
    yield fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem("memory")))
    MemoryFileSystem.store.clear()


class RenamesOnce:
    """A local folder that, like HDFS, renames onto no file."""

    type_name = "hdfs"

    def __init__(self) -> None:
        self._local = fs.LocalFileSystem()
        self.open_output_stream, self.delete_file = self._local.open_output_stream, self._local.delete_file
        self.get_file_info = self._local.get_file_info

    def move(self, source: str, target: str) -> None:
        try:
            os.link(source, target)  # fails where the target exists, whoever comes first
        except FileNotFoundError as error:
            raise OSError("no such folder") from error
        os.remove(source)


def created(system, key: str, number: int) -> bool:
    return create_new(system, "x://bucket", key, b"%d" % number)


def test_one_of_several_creates_a_file(memory, tmp_path):
    for system, key in ((memory, "/bucket/file"), (RenamesOnce(), str(tmp_path / "file"))):
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(partial(created, system, key), range(4)))
        assert sorted(made) == [False, False, False, True]
        with system.open_input_stream(key) if system is memory else open(key, "rb") as file:
            assert file.read() == b"%d" % made.index(True)
    assert os.listdir(tmp_path) == ["file"], "no temporary file is left"


def test_a_rename_that_fails_for_another_reason_is_an_error(tmp_path):
    system = RenamesOnce()
    system.move = lambda source, target: (_ for _ in ()).throw(OSError("quota"))
    with pytest.raises(OSError, match="quota"):
        create_new(system, "hdfs://name", str(tmp_path / "file"), b"")
    assert os.listdir(tmp_path) == []


def test_a_store_without_the_operation_says_so(memory, monkeypatch):
    def refuse(self, path, value, **options):
        raise NotImplementedError("no conditions")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    with pytest.raises(Unsupported, match=r"x://bucket: its file system cannot create .* \(no conditions\)"):
        create_new(memory, "x://bucket", "/bucket/file", b"")


def test_a_missing_package_is_named(monkeypatch):
    def missing(url):
        raise ImportError("install it")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    for kind, package in (("gcs", "gcsfs"), ("abfs", "adlfs"), ("other", "a package of fsspec")):
        with pytest.raises(Unsupported, match=f"exclusive creation on x://b needs {package}: pip install"):
            create_new(SimpleNamespace(type_name=kind), "x://b", "key", b"")


def test_times_are_those_of_the_store(memory):
    create_new(memory, "memory://bucket", "/bucket/file", b"")
    info = memory.get_file_info("/bucket/file")
    stored = fsspec.filesystem("memory").modified("/bucket/file").timestamp()
    assert modified(memory, info) == pytest.approx(stored, abs=1e-3)
    assert modified(memory, SimpleNamespace(mtime_ns=1_500_000_000, path="x")) == 1.5
    assert modified(memory, SimpleNamespace(mtime_ns=None, path="/bucket/gone")) == 0.0
    with pytest.raises(Unsupported, match="keeps no times"):
        modified(SimpleNamespace(handler=SimpleNamespace(fs=object())), SimpleNamespace(mtime_ns=None, path="x"))
