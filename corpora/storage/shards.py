"""Shards: Arrow IPC files with a constant number of rows per batch, written atomically and read by memory map."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpora.errors import StoreError
from corpora.storage import files
from corpora.storage.arrow_views import booleans, fill_nulls, numbers, validity
from corpora.storage.files import CountingHash
from corpora.storage.manifest import Manifest, ShardInfo

_compared: set[tuple[str, str, int, int, int]] = set()  # local shards that this process has compared already
MOST_SHARDS = 99_999  # per artefact, so that sorting shards by name sorts them by number


def shard_name(index: int, count: int) -> str:
    """Return the file name of shard ``index``, from 0, of ``count``."""
    return f"part-{index:05d}-of-{count:05d}.arrow"


class ShardWriter:
    """Writes rows in record batches of exactly ``rows_per_batch`` rows (the last may be shorter)."""

    def __init__(self, sink: CountingHash, schema: pa.Schema, rows_per_batch: int, compression: str | None) -> None:
        options = pa.ipc.IpcWriteOptions(compression=compression)
        self._writer = pa.ipc.new_file(pa.PythonFile(sink, "w"), schema, options=options)
        self._schema, self._rows_per_batch = schema, rows_per_batch
        self._waiting: list[pa.RecordBatch] = []
        self.rows = self.tokens = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        if sum(len(part) for part in self._waiting) >= self._rows_per_batch:
            self._flush(whole=True)

    def close(self) -> None:
        self._flush(whole=False)
        self._writer.close()

    def _flush(self, whole: bool) -> None:
        table = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
        self._waiting = []
        for batch in table.to_batches(max_chunksize=self._rows_per_batch):
            if whole and len(batch) < self._rows_per_batch:
                self._waiting = [batch]
                return
            batch = pa.record_batch([compact(column) for column in batch.columns], schema=self._schema)
            self._writer.write_batch(batch)
            self.rows += len(batch)
            if "tokens" in batch.schema.names:
                self.tokens += len(batch.column("tokens").values)


def compact(array: pa.Array) -> pa.Array:
    """Return the same values in buffers of exactly their size.

    Arrow pads a slice that it writes with up to 63 bytes of whatever follows in memory, so bytes on disk would depend
    on how rows were sliced before.
    """
    kind = array.type
    if pa.types.is_boolean(kind) and not array.null_count:
        return pa.array(booleans(array))
    if array.null_count and pa.types.is_integer(kind):
        return pa.array(fill_nulls(array, 0), kind, mask=~validity(array))
    if array.null_count or pa.types.is_boolean(kind):
        return array.take(pa.array(np.arange(len(array))))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = numbers(array.offsets)
        values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        return type(array).from_arrays(pa.array(offsets - offsets[0]), compact(values), type=kind)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(compact(array.flatten()), type=kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.array(array.to_pylist(), kind)
    width = kind.byte_width
    values = array.buffers()[1].slice(array.offset * width, len(array) * width) if len(array) else pa.py_buffer(b"")
    return pa.Array.from_buffers(kind, len(array), [None, values])


@contextmanager
def write_shard(
    path: str, schema: pa.Schema, rows_per_batch: int, compression: str | None = None
) -> Iterator[tuple[ShardWriter, list[ShardInfo]]]:
    """Write one shard atomically; its ``ShardInfo`` is added to the yielded list when the body ends."""
    info: list[ShardInfo] = []
    with files.create(path) as file:
        sink = CountingHash(file)
        writer = ShardWriter(sink, schema, rows_per_batch, compression)
        yield writer, info
        writer.close()
    info.append(ShardInfo(os.path.basename(path), writer.rows, writer.tokens, sink.bytes, sink.sha256()))


def read_shard(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a shard on any file system, without comparing its checksum."""
    reader = open_shard(path)
    for index in range(reader.num_record_batches):
        yield reader.get_batch(index)


def open_shard(path: str) -> pa.RecordBatchFileReader:
    """Open a shard: a local one memory-mapped, a remote one so that each part is read on demand."""
    if files.is_local(path):
        return map_shard(path)[1]
    try:
        return pa.ipc.open_file(pa.PythonFile(files.open(path), "r"))
    except (OSError, pa.ArrowInvalid) as error:
        raise unreadable_error(path, error) from error


def map_shard(path: str, ahead: bool = True) -> tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]:
    """Memory-map a shard: return the whole file as one buffer, and a reader whose arrays are views of that buffer.

    A remote shard is first copied to the folder for temporary files; the copy is freed with the buffer. ``ahead``: True
    to have the system read the whole file ahead, False to have it read only the parts that are used.
    """
    with local_copy(path) as local:
        try:
            with files.open(local) as file:  # not a pipe, which would block for ever
                if ahead:
                    buffer = pa.memory_map(local).read_buffer()  # keeps no file open, unlike Python's mappings
                else:
                    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    mapping.madvise(mmap.MADV_RANDOM)
                    buffer = pa.py_buffer(mapping)
            return buffer, pa.ipc.open_file(buffer)  # stays valid after the name is deleted
        except (OSError, ValueError) as error:  # Arrow's errors of content and an empty file are values
            raise unreadable_error(path, error) from error


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Yield the path of a local file, or of a copy of a remote one, deleted at the end of the ``with`` block."""
    if files.is_local(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="farspan-shard-") as copy:
        try:
            with files.open(path) as source:
                shutil.copyfileobj(source, copy, 8 << 20)
        except FileNotFoundError as error:
            raise unreadable_error(path, error) from error
        copy.flush()
        yield copy.name


def unreadable_error(path: str, error: Exception | str) -> StoreError:
    """Return the error for a shard that is damaged or differs from its artefact's manifest."""
    return StoreError(
        f"{path}: not a readable shard ({error}); `farspan verify` lists every damaged shard; "
        "copy it again from its source, or run the job that made it into an empty folder"
    )


@dataclass(frozen=True)
class StoredShard:
    """A shard and the hex digest of its file from the manifest of its artefact; small, so that tasks can carry it."""

    path: str
    rows: int
    sha256: str

    def map(self) -> tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]:
        """Map the shard by ``map_shard``, and compare its bytes with those of the manifest.

        A local shard is compared once per process, a remote one each time it is fetched.
        """
        buffer, reader = map_shard(self.path)
        if not files.is_local(self.path):
            self.compare(buffer)
            return buffer, reader
        state = os.stat(self.path)
        identity = (self.path, self.sha256, state.st_ino, state.st_size, state.st_mtime_ns)
        if identity not in _compared:
            self.compare(buffer)
            _compared.add(identity)
        return buffer, reader

    def batches(self, first: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the record batches from number ``first`` on."""
        _, reader = self.map()
        for index in range(first, reader.num_record_batches):
            yield reader.get_batch(index)

    def compare(self, buffer: pa.Buffer) -> None:
        """Compare the bytes of the shard with its checksum."""
        if (actual := hashlib.sha256(buffer).hexdigest()) != self.sha256:
            raise unreadable_error(self.path, f"sha256 {actual} where the manifest says {self.sha256}")


def list_shards(folder: str, manifest: Manifest) -> list[StoredShard]:
    """Return all shards of the artefact in ``folder``, in order."""
    return [
        StoredShard(os.path.join(folder, "shards", shard.name), shard.rows, shard.sha256) for shard in manifest.shards
    ]
