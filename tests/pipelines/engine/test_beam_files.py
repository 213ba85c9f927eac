"""Beam's file systems behind farspan's few operations, shown on a small one that publishes a file when it is closed."""

from __future__ import annotations

import io

import pytest
from apache_beam.io.filesystem import FileMetadata, FileSystem

from corpora.errors import FarspanError
from corpora.storage.files import LocalFiles, read_bytes, sweep, temporary_name, write_bytes
from pipelines.engine.artefacts import absolute, parent_entry, parent_folder
from pipelines.engine.beam_files import BeamFiles, files_for

STORED: dict[str, bytes] = {}


class Published(io.BytesIO):
    def __init__(self, path):
        super().__init__()
        self._path = path

    def close(self):
        if not self.closed:
            STORED[self._path] = self.getvalue()
        super().close()


class Memory(FileSystem):
    """``attic://``: files in this process."""

    @classmethod
    def scheme(cls):
        return "attic"

    def has_dirs(self):
        return False

    def _list(self, prefix):
        return [self.metadata(path) for path in STORED if path.startswith(prefix)]

    def create(self, path, *_):
        return Published(path)

    def open(self, path, *_):
        return io.BytesIO(STORED[path])

    def rename(self, sources, targets):
        for source, target in zip(sources, targets, strict=True):
            STORED[target] = STORED.pop(source)

    def exists(self, path):
        return path in STORED

    def size(self, path):
        return len(STORED[path])

    def metadata(self, path):
        return FileMetadata(path, len(STORED[path]), 0.0)

    def delete(self, paths):
        for path in paths:
            del STORED[path]

    join = split = mkdirs = copy = last_updated = checksum = None


@pytest.fixture
def files():
    STORED.clear()
    found = files_for("attic://folder")
    assert isinstance(found, BeamFiles)
    return found


def test_the_local_disk_finds_the_same(files, tmp_path):
    places = ((files, "attic://folder"), (LocalFiles(), str(tmp_path)))
    for store, root in places:
        for name in ("x/1.jsonl", "x/y/2.jsonl", "x.jsonl", "z [1]/3.jsonl"):
            write_bytes(store, f"{root}/{name}", name.encode())
    for call, below in (("walk", ""), ("walk", "/x"), ("walk", "/z [1]"), ("walk", "/none"), ("match", "/*.jsonl")):
        answers = [[path.removeprefix(root) for path in getattr(store, call)(root + below)] for store, root in places]
        assert answers[0] == answers[1], (call, below)
    for store, root in places:
        assert read_bytes(store, f"{root}/x/y/2.jsonl") == b"x/y/2.jsonl"
        assert store.size(f"{root}/z [1]/3.jsonl") == 13
        with pytest.raises(FileNotFoundError, match="none"):
            store.size(f"{root}/none")
        store.delete([f"{root}/x.jsonl", f"{root}/gone"])
        assert not store.exists(f"{root}/x.jsonl")


def test_a_writer_that_fails_changes_nothing(files):
    write_bytes(files, "attic://folder/a", b"before")
    for name in ("a", "b"):
        with pytest.raises(KeyError), files.create(f"attic://folder/{name}") as file:
            file.write(b"half")
            raise KeyError
    assert STORED == {"attic://folder/a": b"before"}


def test_what_a_killed_writer_left_is_swept(files):
    write_bytes(files, "attic://folder/a", b"whole")
    write_bytes(files, temporary_name("attic://folder/b"), b"half")
    sweep(files, "attic://folder")
    assert STORED == {"attic://folder/a": b"whole"}


def test_a_scheme_that_nobody_knows_is_refused():
    with pytest.raises(FarspanError, match=r"x://y: no file system x:// is installed"):
        files_for("x://y")


@pytest.mark.parametrize(
    ("output", "parent", "path"),
    [
        ("attic://bucket/a/corpus", "attic://bucket/documents", "../../documents"),
        ("attic://bucket/corpus", "attic://other/documents", "attic://other/documents"),
        ("/a/corpus", "attic://bucket/documents", "attic://bucket/documents"),
        ("attic://bucket/corpus", "/a/documents", "/a/documents"),
        ("/a/corpus", "/a/documents", "../documents"),
    ],
)
def test_artefacts_that_move_together_keep_their_parents(files, monkeypatch, output, parent, path):
    monkeypatch.setattr("pipelines.engine.artefacts.manifest_sha256", lambda *_: "0")
    assert parent_entry(output, parent)["path"] == path
    assert parent_folder(output, path) == parent


def test_equal_folders_have_equal_paths():
    assert absolute("attic://bucket/a/") == absolute("attic://bucket/a")
