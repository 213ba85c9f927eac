"""The cache of remote shards: bounded, shared, compared on arrival, and nothing in use is removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import fsspec
import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.copies import shard_cache
from corpora.storage.copies.shard_cache import ShardCache
from corpora.storage.files import write_bytes
from corpora.storage.manifest import ShardInfo

SIZE = 1000  # bytes of a shard
ROOT = "memory://corpus/shards"
HOLD = """
import sys
from corpora.storage.manifest import ShardInfo
from corpora.storage.copies.shard_cache import ShardCache
folder, size, path, sha256 = sys.argv[1:]
held = ShardCache(int(size), folder).map(path, ShardInfo("", 0, 0, 1000, sha256))
print("held", flush=True)
sys.stdin.read()
"""


def shard(number: int) -> tuple[str, ShardInfo]:
    """Path and description of a shard."""
    data = bytes([number]) * SIZE
    return f"{ROOT}/{number}", ShardInfo(str(number), 1, 1, SIZE, sha256(data).hexdigest())


@pytest.fixture
def fetched(monkeypatch):
    """Ten shards in a store, and the paths that were fetched from there."""
    fsspec.filesystem("memory").store.clear()
    for number in range(10):
        write_bytes(shard(number)[0], bytes([number]) * SIZE)
    paths, opened = [], files.open

    def counted(path):
        if "://" in path:
            paths.append(int(path.rpartition("/")[2]))
        return opened(path)

    monkeypatch.setattr(files, "open", counted)
    return paths


def stored(folder) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_shard_is_fetched_once_and_stays_for_other_processes(fetched, tmp_path):
    for cache in (ShardCache(5 * SIZE, str(tmp_path)), ShardCache(5 * SIZE, str(tmp_path))):
        for number in (3, 4, 3):
            assert bytes(cache.map(*shard(number))) == bytes([number]) * SIZE
    assert fetched == [3, 4]


def test_the_copies_lie_in_the_folder_of_all_copies(fetched, tmp_path, monkeypatch):
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path))
    ShardCache(SIZE).map(*shard(1))
    assert (tmp_path / "shards" / shard(1)[1].sha256).read_bytes() == b"\1" * SIZE


def test_it_never_takes_more_than_its_size_and_gives_up_what_was_used_longest_ago(fetched, tmp_path):
    cache = ShardCache(3 * SIZE + 10, str(tmp_path))
    for number in (0, 1, 2, 0, 3, 0, 4, 5):
        cache.map(*shard(number))
        assert stored(tmp_path) <= cache.size
    cache.map(*shard(0))
    assert fetched == [0, 1, 2, 3, 4, 5]


def test_what_is_in_use_is_never_removed(fetched, tmp_path):
    cache = ShardCache(2 * SIZE, str(tmp_path))
    first, second = cache.map(*shard(0)), cache.map(*shard(1))
    assert cache.map(*shard(2), patience=0) is None
    with pytest.raises(FarspanError, match=r"has 2,000 bytes, and all of them are in use; raise cache_gib"):
        cache.map(*shard(2), patience=0.01)
    part = first.slice(10, 20)  # as an array of the shard would
    del first
    assert cache.map(*shard(2), patience=0) is None
    del part
    assert bytes(cache.map(*shard(2), patience=0)) == b"\2" * SIZE
    assert bytes(second) == b"\1" * SIZE
    assert fetched == [0, 1, 2]


def test_another_process_that_uses_a_shard_keeps_it_until_its_end(fetched, tmp_path):
    cache = ShardCache(SIZE, str(tmp_path))
    path, info = shard(0)
    cache.map(path, info)
    command = [sys.executable, "-c", HOLD, str(tmp_path), str(SIZE), path, info.sha256]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        assert cache.map(*shard(1), patience=0) is None
        process.kill()
    assert cache.map(*shard(1), patience=0) is not None


def test_processes_that_want_the_same_shards_fetch_each_once(fetched, tmp_path):
    cache = ShardCache(20 * SIZE, str(tmp_path))
    with ThreadPoolExecutor(8) as pool:  # locks are per open file, so threads are as good as processes
        found = list(pool.map(lambda n: bytes(cache.map(*shard(n % 10))[:1]), range(80)))
    assert found == [bytes([n % 10]) for n in range(80)]
    assert sorted(fetched) == list(range(10))


def test_a_damaged_shard_is_named_and_not_kept(fetched, tmp_path):
    path, info = shard(0)
    for data in (b"\1" * SIZE, b"\0" * (SIZE - 1), b"\0" * (SIZE + 1)):
        write_bytes(path, data)
        with pytest.raises(FarspanError, match=r"corpus/shards/0: [\d,]+ bytes with sha256 .* the manifest says 1,000"):
            ShardCache(5 * SIZE, str(tmp_path)).map(path, info)
    files.delete([path])
    with pytest.raises(FarspanError, match="no such file, though its manifest lists it"):
        ShardCache(5 * SIZE, str(tmp_path)).map(path, info)
    assert stored(tmp_path) == 0


def test_a_copy_of_another_size_is_fetched_again(fetched, tmp_path):
    """A copy that was cut short since it was fetched, as by a full disk or another program."""
    cache = ShardCache(5 * SIZE, str(tmp_path))
    copy = tmp_path / shard(1)[1].sha256
    for size in (0, SIZE - 1, SIZE + 1):
        copy.write_bytes(bytes(size))
        assert bytes(cache.map(*shard(1))) == b"\1" * SIZE
    assert fetched == [1, 1, 1]
    held = cache.map(*shard(1))
    os.truncate(copy, 5)
    with pytest.raises(FarspanError, match=f"{copy}: 5 bytes, not 1,000; end its readers, and delete it"):
        cache.map(*shard(1))
    del held


def test_a_folder_that_cannot_hold_the_cache_is_said(fetched, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FarspanError, match=r"file/shards: Not a directory; .*; or set FARSPAN_CACHE to another folder"):
        ShardCache(SIZE, str(tmp_path / "file" / "shards")).map(*shard(1))
    (tmp_path / shard(2)[1].sha256).mkdir()
    with pytest.raises(FarspanError, match=r"; or set FARSPAN_CACHE to another folder"):
        ShardCache(SIZE, str(tmp_path)).map(*shard(2))


def test_a_cache_that_is_deleted_is_filled_again(fetched, tmp_path):
    cache = ShardCache(5 * SIZE, str(tmp_path / "cache"))
    cache.map(*shard(1))
    shutil.rmtree(tmp_path / "cache")
    assert bytes(cache.map(*shard(1))) == b"\1" * SIZE
    assert fetched == [1, 1]


def test_what_a_killed_process_left_is_no_shard_and_makes_room(fetched, tmp_path):
    cache = ShardCache(2 * SIZE, str(tmp_path))
    for number in (0, 1):
        (tmp_path / f"{shard(number)[1].sha256}.part").write_bytes(bytes(SIZE))
    assert bytes(cache.map(*shard(0))) == bytes(SIZE)
    assert bytes(cache.map(*shard(2))) == b"\2" * SIZE
    assert stored(tmp_path) <= cache.size


def test_an_empty_shard_needs_nothing(fetched, tmp_path):
    path, info = shard(0)
    assert len(ShardCache(1, str(tmp_path)).map(path, ShardInfo("0", 0, 0, 0, info.sha256))) == 0
    assert fetched == []


def test_a_full_disk_is_told_with_the_cure(fetched, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shard_cache.os, "pwrite", full)
    with pytest.raises(FarspanError, match=r"No space left on device; make room there, .*; or set FARSPAN_CACHE"):
        ShardCache(5 * SIZE, str(tmp_path)).map(*shard(0))
    assert stored(tmp_path) == 0
