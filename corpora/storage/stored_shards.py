"""Shards of a finished artefact as jobs read them: none of its rows before its bytes have been compared."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from corpora.storage import files
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

    def map(self) -> tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]:
        """The whole shard as one buffer, and its reader, whose arrays lie inside that buffer.

        A local one is compared with its checksum once a process, a remote one each time that it is fetched.

        Raises:
            FarspanError: missing, or other bytes than the manifest says.
        """
        buffer, reader = map_shard(self.path)
        if not files.is_local(self.path):
            self._compare(buffer)
            return buffer, reader
        state = os.stat(self.path)
        seen = (self.path, self.sha256, state.st_ino, state.st_size, state.st_mtime_ns)
        if seen not in _seen:
            self._compare(buffer)
            _seen.add(seen)
        return buffer, reader

    def batches(self, first: int = 0) -> Iterator[pa.RecordBatch]:
        """The record batches from number ``first`` on.

        Raises:
            FarspanError: as ``map``.
        """
        _, reader = self.map()
        for index in range(first, reader.num_record_batches):
            yield reader.get_batch(index)

    def _compare(self, buffer: pa.Buffer) -> None:
        if (found := hashlib.sha256(buffer).hexdigest()) != self.sha256:
            raise unreadable(self.path, f"sha256 {found} where the manifest says {self.sha256}")


def stored_shards(folder: str, manifest: Manifest) -> list[StoredShard]:
    """All shards of the artefact in ``folder``, in order."""
    return [
        StoredShard(os.path.join(folder, "shards", shard.name), shard.rows, shard.sha256) for shard in manifest.shards
    ]
