"""Shards: Arrow IPC files with a constant number of rows per batch, written atomically and read by memory map."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.copies.fetched_shards import FetchedShards, Mapped
from corpora.storage.copies.shard_cache import ShardCache
from corpora.storage.files import CountingHash
from corpora.storage.gather import Block, Gatherable, gather
from corpora.storage.manifest import FileInfo, Manifest, ShardInfo, file_info, read_manifest
from corpora.storage.manifest_contents import tokenizer_fault
from corpora.storage.stores.local_disk import require_regular
from corpora.tokenizers.load import load_tokenizer_of

MOST_SHARDS = 99_999  # of an artefact: their names, in order, are in the order of their numbers
_CACHED_BATCHES = 1 << 16
_COPY_AGAIN = "copy the artefact again, as a whole, or run the job that made it into an empty folder"


def shard_name(index: int, count: int) -> str:
    return f"part-{index:05d}-of-{count:05d}.arrow"


class ShardWriter:
    """Cuts what it is given into batches of exactly ``rows_per_batch`` rows (the last may be shorter)."""

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
    """The same values in buffers of exactly their size.

    Arrow writes a slice with up to 63 bytes of what lies behind it in memory; bytes on disk would depend on how rows
    were cut into blocks on their way.
    """
    kind = array.type
    if array.null_count or pa.types.is_boolean(kind):
        return array.take(pa.array(np.arange(len(array))))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = array.offsets.to_numpy()
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
    """Write one shard atomically; its ``ShardInfo`` is in the yielded list once the body has ended.

    Args:
        compression: None (memory-mapped by readers), ``lz4`` or ``zstd``.
    """
    info: list[ShardInfo] = []
    with files.create(path) as file:
        sink = CountingHash(file)
        writer = ShardWriter(sink, schema, rows_per_batch, compression)
        yield writer, info
        writer.close()
    info.append(ShardInfo(os.path.basename(path), writer.rows, writer.tokens, sink.bytes, sink.sha256()))


def read_shard(path: str) -> Iterator[pa.RecordBatch]:
    """The record batches of a shard on any file system, compared with nothing."""
    reader = open_shard(path)
    for index in range(reader.num_record_batches):
        yield reader.get_batch(index)


def open_shard(path: str) -> pa.RecordBatchFileReader:
    """The reader of a shard: of a local one, memory-mapped; of a remote one, each part is read when it is asked for.

    Raises:
        FarspanError: missing, truncated or not an Arrow file.
    """
    if files.is_local(path):
        return map_shard(path)[1]
    try:
        return pa.ipc.open_file(pa.PythonFile(files.open(path), "r"))
    except (OSError, pa.ArrowInvalid) as error:
        raise unreadable(path, error) from error


def map_shard(path: str) -> tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]:
    """Memory-map a shard: the whole file as one buffer, and its reader, whose arrays lie inside that buffer.

    A remote shard is copied to the folder for temporary files with one read; the copy goes with the buffer.

    Raises:
        FarspanError: missing, truncated or not an Arrow file.
    """
    with ExitStack() as stack:
        local = stack.enter_context(local_copy(path))
        try:
            require_regular(local)
            buffer = pa.memory_map(local).read_buffer()  # which outlives the name
            return buffer, pa.ipc.open_file(buffer)
        except (OSError, pa.ArrowInvalid) as error:
            raise unreadable(path, error) from error


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """The path of a local file itself; for a remote one, of a copy that is deleted at the end of the ``with`` block.

    Raises:
        FarspanError: a remote file is missing.
    """
    if files.is_local(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="farspan-shard-") as copy:
        try:
            with files.open(path) as source:
                shutil.copyfileobj(source, copy, 8 << 20)
        except FileNotFoundError as error:
            raise unreadable(path, error) from error
        copy.flush()
        yield copy.name


def unreadable(path: str, error: Exception | str) -> FarspanError:
    """The error for a shard that differs from its artefact's manifest."""
    return FarspanError(
        f"{path}: not a readable shard ({error}); `farspan verify` lists every damaged shard; "
        "copy it again from its source, or run the job that made it into an empty folder"
    )


Made = TypeVar("Made")


class ShardedRows:
    """Random access to the rows of a finished artefact, numbered 0, 1, ... over its shards in name order.

    Opening costs one manifest; shards are mapped when first touched and their record batches are kept as views. The
    shards of a remote artefact are fetched whole, and the last few are kept, or as many as ``keep`` names: to read its
    rows in random order, copy it first (``corpora.storage.copies.mirror``).
    """

    def __init__(self, folder: str, format: str, verify: bool = False, cache: ShardCache | None = None) -> None:
        """
        Args:
            verify: compare each shard with its checksum when it is first touched.
            cache: where the shards of a remote artefact are fetched to; None for files that nobody else sees.

        Raises:
            FarspanError: no finished artefact of this format.
        """
        self.folder, self.verify = folder, verify
        self.manifest: Manifest = read_manifest(folder, format)
        self.schema: pa.Schema | None = None  # of every shard, where a subclass knows it
        # starts: (shards + 1,) int64, the number of each shard's first row
        self.starts = np.cumsum([0, *(shard.rows for shard in self.manifest.shards)])
        local = files.is_local(folder)
        self.cache = None if local else cache
        self.cached_batches = _CACHED_BATCHES if local else 0  # a batch would keep its shard's copy
        self._fetched = FetchedShards(self._open, last=1 if cache else 4)
        self.shard = lru_cache(maxsize=None)(self._open) if local else self._fetched
        self.batch = self.kept_by_batch(self._batch)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "format": self.manifest.format, "verify": self.verify, "cache": self.cache}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def kept_by_batch(self, make: Callable[[int, int], Made]) -> Callable[[int, int], Made]:
        """``make`` of shard and record batch in it, with its results kept as long as the shard is."""
        if files.is_local(self.folder):
            return lru_cache(maxsize=self.cached_batches)(make)

        def kept(shard: int, batch: int) -> Made:
            known = self._fetched.made(shard)
            key = (make, batch)
            if key not in known:
                known[key] = make(shard, batch)
            return known[key]

        return kept

    def keep(self, shards: Set[int]) -> None:
        """Of a remote artefact, forget all shards but these; of others, only the few read last stay from now on."""
        self._fetched.keep(shards)

    def fetch(self, shard: int) -> bool:
        """Fetch a shard of a remote artefact into the cache and map it; False if the cache has no room at present.

        Raises:
            FarspanError: it is damaged or missing.
        """
        info = self.manifest.shards[shard]
        if shard in self._fetched:
            return True
        assert self.cache is not None
        buffer = self.cache.map(self.path(shard), info, patience=0)
        if buffer is not None:
            self._fetched.add(shard, self._checked(shard, buffer, pa.ipc.open_file(buffer)))
        return buffer is not None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All record batches, in the order of the rows."""
        for shard in range(len(self.manifest.shards)):
            for batch in range(self.shard(shard)[1].num_record_batches):
                yield self.batch(shard, batch)

    def path(self, shard: int) -> str:
        return os.path.join(self.folder, "shards", self.manifest.shards[shard].name)

    def check_files(self) -> None:
        """Look at the size of every shard, which costs no reading, and compare all other files with their checksums.

        Raises:
            FarspanError: a shard that is missing, truncated or another one, a damaged file, another tokenizer.
        """
        for name, listed in self.manifest.files.items():
            self._check_file(os.path.join(self.folder, name), listed)
        has_tokenizer = files.walk(os.path.join(self.folder, "tokenizer"))
        own = load_tokenizer_of(self.folder) if has_tokenizer else None
        if own and (wrong := tokenizer_fault(self.manifest, own)):
            raise FarspanError(f"{self.folder}: its tokenizer is not that of its manifest: {wrong}; {_COPY_AGAIN}")
        if self.cache:
            return  # fetching compares sizes and checksums; a request for each shard would take minutes
        for shard, info in enumerate(self.manifest.shards):
            try:
                size = files.size(self.path(shard))
            except OSError as error:
                raise unreadable(self.path(shard), error) from error
            if size != info.bytes:
                raise unreadable(self.path(shard), f"{size:,} bytes where the manifest says {info.bytes:,}")

    def _check_file(self, path: str, info: FileInfo) -> None:
        try:
            with files.open(path) as file:
                found = file_info(file)
        except OSError as error:
            raise FarspanError(f"{path}: {error.strerror}; {_COPY_AGAIN}") from error
        if found != info:
            raise FarspanError(f"{path}: sha256 {found.sha256} where the manifest says {info.sha256}; {_COPY_AGAIN}")

    def check_shard(self, shard: int) -> None:
        """Compare a shard with its checksum.

        Raises:
            FarspanError: missing, or other bytes.
        """
        self._check_bytes(shard, map_shard(self.path(shard))[0])

    def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shard, record batch in the shard and row in the batch of each of the given ``(n,)`` rows.

        Raises:
            IndexError: a row outside of ``[0, len)``.
        """
        rows = np.asarray(rows, np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise self._outside(rows)
        shards = np.searchsorted(self.starts, rows, side="right") - 1
        inside = rows - self.starts[shards]
        return shards, inside // self.manifest.rows_per_batch, inside % self.manifest.rows_per_batch

    def shards_of(self, rows: np.ndarray) -> list[int]:
        """The shards that hold any of the given ``(n,)`` rows, ascending."""
        return np.unique(np.searchsorted(self.starts, rows, side="right") - 1).tolist()

    def gather(self, rows: np.ndarray, view: Callable[[int, int], Gatherable[Block]]) -> Block:
        """Copy the given ``(n,)`` rows into one block, in the given order; at least one.

        Args:
            view: shard and record batch in it -> its block, best kept from call to call.

        Raises:
            IndexError: a row outside of ``[0, len)``.
            FarspanError: a damaged record batch.
        """
        shards, batches, inside = self.locate(rows)
        blocks = [view(*place) for place in zip(shards.tolist(), batches.tolist(), strict=True)]
        return gather(blocks, np.arange(len(blocks)), inside)

    def _outside(self, rows: np.ndarray) -> IndexError:
        return IndexError(f"rows {rows.min()}..{rows.max()} of {self.folder}, which has {len(self)}")

    def _open(self, shard: int) -> tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]:
        if self.cache:
            found = self.cache.map(self.path(shard), self.manifest.shards[shard])
            assert found is not None
            return self._checked(shard, found, pa.ipc.open_file(found))
        return self._checked(shard, *map_shard(self.path(shard)))

    def _checked(self, shard: int, buffer: pa.Buffer, reader: pa.ipc.RecordBatchFileReader) -> Mapped:
        if self.verify:
            self._check_bytes(shard, buffer)
        if self.schema is not None and not reader.schema.equals(self.schema):
            raise unreadable(self.path(shard), f"its columns are not those of {self.manifest.format}")
        expected = -(-self.manifest.shards[shard].rows // self.manifest.rows_per_batch)
        if reader.num_record_batches != expected:
            raise FarspanError(
                f"{self.path(shard)}: {reader.num_record_batches} record batches where the manifest says {expected}; "
                "the shard belongs to another artefact: copy the right one"
            )
        return buffer, reader

    def _check_bytes(self, shard: int, buffer: pa.Buffer) -> None:
        found, expected = hashlib.sha256(buffer).hexdigest(), self.manifest.shards[shard].sha256
        if found != expected:
            raise unreadable(self.path(shard), f"sha256 {found} where the manifest says {expected}")

    def _batch(self, shard: int, batch: int) -> pa.RecordBatch:
        try:
            found = self.shard(shard)[1].get_batch(batch)
        except (OSError, pa.ArrowInvalid) as error:
            raise unreadable(self.path(shard), error) from error
        size = self.manifest.rows_per_batch
        if len(found) != (expected := min(size, self.manifest.shards[shard].rows - batch * size)):
            raise unreadable(self.path(shard), f"record batch {batch} has {len(found)} rows, not {expected}")
        return found
