"""Operations on local files by path, and the file object that hashes what is written."""

from __future__ import annotations

import hashlib
import io
import os
import time

import numpy as np
import pytest

from corpora.storage import files
from corpora.storage.files import CountingHash
from corpora.storage.temporary import temporary_name


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

    with pytest.raises(RuntimeError, match="lost the lock"), files.published(refuse):
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
    os.utime(path, (1, 1))
    assert files.renew(path, b"first")
    assert abs(files.times(str(tmp_path))["lock"] - time.time()) < 3600
    files.delete([path, path])
    assert not files.renew(path, b"first")
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
