"""The cache of remote shards: shared, compared, bounded; and the shards that an artefact keeps mapped."""

import hashlib
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any
from unittest.mock import Mock

import pytest

from corpora.errors import FarspanError
from corpora.storage import files, shard_cache
from corpora.storage.files import write_bytes
from corpora.storage.manifest import ShardInfo
from corpora.storage.shard_cache import ShardCache
from corpora.storage.sharded_rows import FetchedShards

SIZE = 1000  # bytes of a shard
ROOT = "memory://corpus/shards"
HOLD = """
import sys
from corpora.storage.manifest import ShardInfo
from corpora.storage.shard_cache import ShardCache
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


def damage(copy, number: int) -> None:
    """Change a byte of a copy of a shard in place, as a failing disk does: size and time of modification stay."""
    status = copy.stat()
    with open(copy, "r+b") as file:
        file.seek(SIZE // 2)
        file.write(bytes([number + 1]))
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    shard_cache._compared.clear()  # as in a process that starts now


@pytest.mark.parametrize("size", [5 * SIZE, math.inf])
def test_a_copy_with_other_bytes_is_fetched_again(fetched, tmp_path, size):
    cache = ShardCache(size, str(tmp_path))
    for _ in range(2):
        assert bytes(cache.map(*shard(1))) == b"\1" * SIZE
        damage(tmp_path / shard(1)[1].sha256, 1)
    assert bytes(cache.find(shard(1)[1]) or b"") == b""
    assert fetched == [1, 1]
    held = cache.map(*shard(1))
    damage(tmp_path / shard(1)[1].sha256, 1)
    assert bytes(cache.map(*shard(1))) == b"\1" * SIZE, "also while another reader has it mapped"
    del held


def test_a_copy_is_compared_once_a_process_and_again_after_it_was_written_to(fetched, tmp_path, monkeypatch):
    cache, copy = ShardCache(5 * SIZE, str(tmp_path)), tmp_path / shard(1)[1].sha256
    cache.map(*shard(1))
    compared: list[int] = []
    monkeypatch.setattr(hashlib, "sha256", lambda data=b"": compared.append(len(data)) or sha256(data))
    for _ in range(3):
        cache.map(*shard(1))
    assert compared == []
    shard_cache._compared.clear()
    for _ in range(3):
        cache.map(*shard(1))
    assert compared == [SIZE]
    os.utime(copy, ns=(0, 0))
    cache.map(*shard(1))
    assert compared == [SIZE, SIZE]


def test_without_a_limit_all_shards_are_fetched_and_stay(fetched, tmp_path):
    cache = ShardCache(folder=str(tmp_path))
    cache.fill("memory://corpus", [shard(number) for number in (*range(10), 3)])
    assert sorted(fetched) == list(range(10))
    cache.fill("memory://corpus", [shard(number) for number in range(10)])
    assert [bytes(cache.map(*shard(number))[:1]) for number in range(10)] == [bytes([n]) for n in range(10)]
    assert bytes(cache.find(shard(4)[1])) == b"\4" * SIZE
    assert len(fetched) == 10


def test_an_interrupted_copy_of_all_is_completed(fetched, tmp_path, monkeypatch):
    fetch = shard_cache._fetch

    def interrupted(path, target, info):
        if path.endswith("/2"):
            raise KeyboardInterrupt
        fetch(path, target, info)

    cache, shards = ShardCache(folder=str(tmp_path)), [shard(number) for number in range(3)]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shard_cache, "_fetch", interrupted)
        cache.fill("memory://corpus", shards)
    cache.fill("memory://corpus", shards)
    assert sorted(fetched) == [0, 1, 2]


def test_a_disk_without_space_is_named_before_anything_is_copied(fetched, tmp_path, monkeypatch):
    total = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: total._replace(free=2 * SIZE))
    with pytest.raises(FarspanError, match=r"^memory://corpus: its local copy needs 3,000 bytes, .* has 2,000 free; s"):
        ShardCache(folder=str(tmp_path)).fill("memory://corpus", [shard(number) for number in range(3)])
    assert fetched == []


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
    monkeypatch.setattr(os, "pwrite", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(FarspanError, match=r"No space left on device; make room there, .*; or set FARSPAN_CACHE"):
        ShardCache(5 * SIZE, str(tmp_path)).map(*shard(0))
    assert stored(tmp_path) == 0


def opened(last: int) -> tuple[FetchedShards, list[int]]:
    """Shards, and the numbers of those that were opened."""
    numbers: list[int] = []
    open_shard: Any = lambda shard: numbers.append(shard) or (f"buffer {shard}", f"reader {shard}")  # noqa: E731
    return FetchedShards(open_shard, [10] * 8, last), numbers


def test_the_last_used_ones_stay():
    shards, numbers = opened(last=2)
    for shard in (0, 1, 0, 2, 0, 1):
        assert shards(shard) == (f"buffer {shard}", f"reader {shard}")
    assert numbers == [0, 1, 2, 1]


def test_those_that_are_asked_for_stay_beside_the_last_used_one():
    shards, numbers = opened(last=1)
    shards.keep({3, 4})
    for shard in (3, 4, 5, 6, 3, 4, 6, 5):
        shards(shard)
    assert numbers == [3, 4, 5, 6, 5]
    shards.keep({4})
    assert [shard in shards for shard in (3, 4, 5)] == [False, True, False]


def test_what_was_made_of_a_shard_goes_with_it():
    shards, numbers = opened(last=1)
    shards.derived(0)["view"] = 1
    assert shards.derived(0) == {"view": 1}
    shards.keep(set())
    assert shards.derived(0) == {}
    assert numbers == [0, 0]


def test_a_shard_that_was_fetched_ahead_is_not_opened():
    shards, numbers = opened(last=1)
    shards.add(7, ("buffer", "reader"))
    shards.add(7, ("another", "reader"))
    assert shards(7) == ("buffer", "reader")
    assert numbers == []


def test_those_used_last_stay_up_to_a_number_of_bytes():
    shards, _ = opened(last=8)
    for shard in (0, 1, 2, 3, 0):
        shards(shard)
    shards.keep({5}, room=35)
    assert [shard for shard in range(8) if shard in shards] == [0, 3]
    shards.keep(set(), room=10)
    assert [shard for shard in range(8) if shard in shards] == [0]
