"""Local copies of remote artefacts."""

from __future__ import annotations

import os
import shutil

import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.copies import mirror
from corpora.storage.copies.mirror import mirrored
from corpora.storage.manifest_file import manifest_sha256, read_manifest
from corpora.verify.artefact import verify
from tests.artefacts import make_documents


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> str:
    return make_documents(str(tmp_path_factory.mktemp("local") / "documents"), shards=3)


@pytest.fixture
def remote(bucket, local, tmp_path, monkeypatch) -> str:
    """The documents in the bucket; copies go below ``tmp_path``."""
    monkeypatch.setenv(mirror.CACHE, str(tmp_path))
    for path in files.walk(local):
        files.write_bytes(f"{bucket}/documents/{os.path.relpath(path, local)}", files.read_bytes(path))
    return f"{bucket}/documents"


def contents(folder: str) -> dict[str, bytes]:
    return {os.path.relpath(path, folder): files.read_bytes(path) for path in files.walk(folder)}


def test_a_local_artefact_is_its_own_copy(local):
    assert mirrored(local) == local


def test_a_copy_is_whole_and_made_once(remote, local, store):
    copy = mirrored(remote)
    assert os.path.basename(copy) == manifest_sha256(local)
    assert contents(copy) == contents(local)
    assert verify(copy) == []
    store.requests.clear()
    assert mirrored(f"{remote}/") == copy
    assert store.asked("GET", "shards/") == 0


def test_an_interrupted_copy_is_completed(remote, local, store, monkeypatch):
    made = mirror._copy

    def interrupted(source, target, info):
        if "part-00001" in source:
            raise KeyboardInterrupt
        made(source, target, info)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(mirror, "_copy", interrupted)
        mirrored(remote)
    store.requests.clear()
    assert contents(mirrored(remote)) == contents(local)
    assert [store.asked("GET", f"part-0000{shard}") > 0 for shard in range(3)] == [False, True, True]


def test_a_damaged_shard_is_not_copied(remote, tmp_path):
    path = f"{remote}/shards/{read_manifest(remote).shards[1].name}"
    data = files.read_bytes(path)
    files.write_bytes(path, data[:100] + bytes([data[100] ^ 1]) + data[101:])
    with pytest.raises(FarspanError, match=rf"{path}: [\d,]+ bytes with sha256 \w+, the manifest says .*copy it again"):
        mirrored(remote)
    assert not list(tmp_path.rglob("manifest.json"))
    assert not list(tmp_path.rglob("part-00001*"))


def test_a_disk_without_space_is_found_before_anything_is_copied(remote, tmp_path, monkeypatch):
    total = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(mirror.shutil, "disk_usage", lambda folder: total._replace(free=1000))
    with pytest.raises(FarspanError, match=r"its local copy needs [\d,]+ bytes, .* has 1,000 free; set FARSPAN_CACHE"):
        mirrored(remote)
    assert not list(tmp_path.rglob("*.arrow"))
