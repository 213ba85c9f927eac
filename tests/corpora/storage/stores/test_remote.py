"""Remote stores other than S3, shown on fsspec's file system in memory and on one that publishes half files."""

from __future__ import annotations

import time

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import read_bytes, sweep, write_bytes
from corpora.storage.stores import remote
from corpora.storage.stores.exclusive import Unsupported
from corpora.storage.temporary import temporary_name


def test_the_local_disk_finds_the_same(root, tmp_path):
    roots = (root, str(tmp_path))
    for place in roots:
        for name in ("x/1.jsonl", "x/y/2.jsonl", "x.jsonl", "z [1]/3.jsonl"):
            write_bytes(f"{place}/{name}", name.encode())
    for call, below in (("walk", ""), ("walk", "/x"), ("walk", "/z [1]"), ("walk", "/none"), ("match", "/*.jsonl")):
        answers = [[path.removeprefix(place) for path in getattr(files, call)(place + below)] for place in roots]
        assert answers[0] == answers[1], (call, below)
    for place in roots:
        assert read_bytes(f"{place}/x/y/2.jsonl") == b"x/y/2.jsonl"
        assert files.size(f"{place}/z [1]/3.jsonl") == 13
        with pytest.raises(FileNotFoundError, match="none"):
            files.size(f"{place}/none")
        files.delete([f"{place}/x.jsonl", f"{place}/gone"])
        assert not files.exists(f"{place}/x.jsonl")


def test_what_a_killed_writer_left_is_swept(root):
    write_bytes(f"{root}/a", b"whole")
    write_bytes(temporary_name(f"{root}/b"), b"half")
    sweep(root)
    assert files.walk(root) == [f"{root}/a"]


def test_what_the_store_refuses_is_one_line(attic):
    with pytest.raises(FarspanError, match=r"^attic://refused/a: the attic is locked; finished work is kept") as caught:
        write_bytes("attic://refused/a", b"x")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["x://y", "s4://bucket/a"])
def test_a_scheme_that_nobody_knows_is_refused(path):
    with pytest.raises(FarspanError, match=rf"no file system {path[: path.index(':')]}:// is installed"):
        files.exists(path)


def test_a_library_that_is_missing_is_named():
    error = "loft:// needs the library loft"
    fsspec.register_implementation("loft", "no_such_module.Loft", clobber=True, errtxt=error)
    with pytest.raises(FarspanError, match=r"^loft://a/b: loft:// needs the library loft$"):
        files.exists("loft://a/b")


@pytest.mark.parametrize(
    ("root", "type_name", "base"),
    [
        ("gs://bucket", "gcs", "bucket"),
        ("abfs://container@account.dfs.core.windows.net", "abfs", "container/"),
    ],
)
def test_arrow_has_its_own_file_system(root, type_name, base, monkeypatch):
    monkeypatch.setattr(remote.credentials, "require_azure", lambda root: None)
    system, found = remote._connected(root)
    assert (system.type_name, found) == (type_name, base)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.txt", ["a.txt", ".txt"], ["a/b.txt", "a.txt2"]),
        ("a/**.txt", ["a/b.txt", "a/b/c.txt"], ["b/a.txt"]),
        ("a?c", ["abc", "a.c"], ["ac", "abbc"]),
        ("[!ab]c[]x]", ["cc]", "ccx"], ["acx", "cc"]),
        ("a[*]b[", ["a*b["], ["axb[", "a*b"]),
    ],
)
def test_globs(pattern, matching, other):
    names = sorted(matching + other)
    for name in names:
        write_bytes(f"memory://globs/{name}", b"")
    found = files.match(f"memory://globs/{pattern}")
    fsspec.filesystem("memory").store.clear()
    assert found == [f"memory://globs/{name}" for name in sorted(matching)]


def test_a_check_decides_before_a_file_appears(root):
    write_bytes(f"{root}/a", b"before")

    def refuse():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError), files.published(refuse):
        write_bytes(f"{root}/a", b"after")
    assert read_bytes(f"{root}/a") == b"before"
    assert files.walk(root) == [f"{root}/a"]


@pytest.mark.parametrize("disk", [True, False])
def test_names_times_and_renewals(tmp_path, disk):
    fsspec.filesystem("memory").store.clear()
    folder = str(tmp_path) if disk else "memory://folder"
    write_bytes(f"{folder}/a", b"1")
    write_bytes(f"{folder}/below/b", b"1")
    assert files.names(folder) == ["a"]
    before = files.times(folder)
    assert before.keys() == {"a"}
    time.sleep(0.01)
    assert files.renew(f"{folder}/a", b"1")
    assert before["a"] < files.times(folder)["a"] < before["a"] + 10
    files.delete([f"{folder}/a"])
    assert not files.renew(f"{folder}/a", b"1")
    assert files.names(folder) == []
    assert files.names(f"{folder}/none") == []
    assert files.times(f"{folder}/none") == {}


def test_a_store_that_cannot_create_exclusively_says_so(root, monkeypatch):
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lambda self, path, value: None)
    with pytest.raises(Unsupported, match="cannot create a file exclusively"):
        files.create_new(f"{root}/a", b"1")
