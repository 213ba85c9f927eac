"""Shards of a finished artefact as jobs read them: none of its rows before its bytes have been compared."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from corpora.storage.files import Files, LocalFiles
from corpora.storage.manifest import Manifest
from corpora.storage.shards import map_shard, unreadable

_seen: set[tuple[str, str, int, int, int]] = set()  # local shards that this process has compared already


@dataclass(frozen=True)
class StoredShard:
    """A shard and its checksum, as the manifest of its artefact has it; small, for tasks to carry.

    Attributes:
        path: anywhere.
        rows: how many.
        sha256: hex.
    """

    path: str
    rows: int
    sha256: str

    def map(self, files: Files) -> tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]:
        """The whole shard as one buffer, and its reader, whose arrays lie inside that buffer.

        A local one is mapped, and compared with its checksum once a process. One elsewhere is brought to local disk
        with one read, compared on its way.

        Raises:
            FarspanError: missing, or other bytes than the manifest says.
        """
        if not isinstance(files, LocalFiles):
            return self._fetch(files)
        buffer, reader = map_shard(self.path)
        state = os.stat(self.path)
        seen = (self.path, self.sha256, state.st_ino, state.st_size, state.st_mtime_ns)
        if seen not in _seen:
            self._compare(hashlib.sha256(buffer).hexdigest())
            _seen.add(seen)
        return buffer, reader

    def batches(self, files: Files, first: int = 0) -> Iterator[pa.RecordBatch]:
        """The record batches from number ``first`` on.

        Raises:
            FarspanError: as ``map``.
        """
        _, reader = self.map(files)
        for index in range(first, reader.num_record_batches):
            yield reader.get_batch(index)

    def _fetch(self, files: Files) -> tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]:
        digest = hashlib.sha256()
        with tempfile.NamedTemporaryFile(prefix="farspan-shard-") as copy:  # the mapping outlives the name
            try:
                with files.open(self.path) as source:
                    while data := source.read(8 << 20):
                        digest.update(data)
                        copy.write(data)
            except FileNotFoundError as error:
                raise unreadable(self.path, error) from error
            copy.flush()
            self._compare(digest.hexdigest())
            return map_shard(copy.name)

    def _compare(self, found: str) -> None:
        if found != self.sha256:
            raise unreadable(self.path, f"sha256 {found} where the manifest says {self.sha256}")


def stored_shards(folder: str, manifest: Manifest) -> list[StoredShard]:
    """All shards of the artefact in ``folder``, in order."""
    return [
        StoredShard(os.path.join(folder, "shards", shard.name), shard.rows, shard.sha256) for shard in manifest.shards
    ]
