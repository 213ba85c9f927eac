"""Intermediate files between the stages of a job, with checksums that detect damage.

Record batches carry the CRC-32 of their values, because a task reads one batch of many in a file; arrays end with
their sha256.
"""

from __future__ import annotations

import hashlib
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from corpora.errors import StoreError
from corpora.storage import files
from corpora.storage.files import is_local, read_bytes, write_bytes
from corpora.storage.manifest import ShardInfo
from corpora.storage.shards import StoredShard, compact, open_shard

_KEY = b"crc32"
_seen: set[tuple[str, int, int, int]] = set()  # local arrays whose checksum this process has compared


def partition(labels: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Indices of the ``(n,)`` labels equal to 0, then to 1, up to ``count - 1``; each ascending."""
    order = np.argsort(labels, kind="stable")
    edges = np.searchsorted(labels[order], np.arange(count + 1))
    for first, last in pairwise(edges):
        yield order[first:last]


def first_of_key(keys: np.ndarray) -> np.ndarray:
    """``(n,)`` bool: True for the first of equal ones among ``(n, 2)`` sorted keys."""
    first = np.ones(len(keys), bool)
    first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    return first


def write_batches(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write record batches to a file, each with its checksum."""
    with files.create(path) as file, pa.ipc.new_file(pa.PythonFile(file, "w"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch, custom_metadata={_KEY: str(checksum(batch))})


def read_batch(path: str, index: int) -> pa.RecordBatch:
    """Read record batch ``index``; of a remote file, only the footer and that batch."""
    return read_checked_batch(open_shard(path), index, path)


def read_checked_batch(reader: pa.RecordBatchFileReader, index: int, path: str) -> pa.RecordBatch:
    """As ``read_batch``, from an open file."""
    try:
        batch, metadata = reader.get_batch_with_custom_metadata(index)
        batch.validate(full=True)
        found, expected = str(checksum(batch)), (metadata or {}).get(_KEY, b"none").decode()
    except (pa.ArrowException, OSError, ValueError, IndexError, OverflowError) as error:
        raise _damaged(path, f"record batch {index}: {error}") from error
    if found != expected:
        raise _damaged(path, f"record batch {index} has checksum {found} where {expected} was written")
    return batch


def checksum(batch: pa.RecordBatch) -> int:
    """CRC-32 of the values of a batch; independent of the buffers that hold them."""
    total = zlib.crc32(str(len(batch)).encode())
    for column in batch.columns:
        for buffer in compact(column).buffers():
            total = zlib.crc32(buffer or b"", total)
    return total


def write_checksum(shard: str, info: ShardInfo) -> None:
    """Write the checksum of an intermediate shard beside it."""
    write_bytes(_checksum_path(shard), info.sha256.encode())


def read_checked_shard(shard: str) -> Iterator[pa.RecordBatch]:
    """Read the record batches of a shard of ``write_checksum``."""
    return StoredShard(shard, 0, read_bytes(_checksum_path(shard)).decode()).batches()


def _checksum_path(shard: str) -> str:
    return shard.removesuffix(".arrow") + ".sha256"


def write_array(path: str, values: np.ndarray) -> None:
    """Write an array as ``numpy.save`` does, followed by the sha256 of these bytes."""
    data = npy_bytes(values)
    write_bytes(path, data + hashlib.sha256(data).digest())


def read_array(path: str, mapped: bool = False) -> np.ndarray:
    """Read an array of ``write_array``, or map a local one; a local checksum is compared once per process."""
    if not is_local(path):
        data = read_bytes(path)
        _compare(path, data)
        return np.load(io.BytesIO(data), allow_pickle=False)
    try:
        state = os.stat(path)
        seen = (path, state.st_ino, state.st_size, state.st_mtime_ns)
        if seen not in _seen:
            _compare(path, read_bytes(path))
            _seen.add(seen)
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except OSError as error:
        raise _damaged(path, str(error)) from error


def npy_bytes(values: np.ndarray) -> bytes:
    """The bytes that ``numpy.save`` writes."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def _compare(path: str, data: bytes) -> None:
    if hashlib.sha256(memoryview(data)[:-32]).digest() != data[-32:]:
        raise _damaged(path, "its checksum is not that of what was written")


def _damaged(path: str, reason: str) -> StoreError:
    return StoreError(
        f"{path}: not what an earlier task of this job wrote ({reason}); delete the job's output folder and run the "
        "same command again"
    )
