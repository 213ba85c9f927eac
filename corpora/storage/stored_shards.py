"""Shards of a finished artefact for jobs: no row is read before the checksum has been compared."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from corpora.storage import files
from corpora.storage.manifest import Manifest
from corpora.storage.shards import map_shard, unreadable

_compared: set[tuple[str, str, int, int, int]] = set()  # local shards that this process has compared already


@dataclass(frozen=True)
class StoredShard:
    """A shard and its checksum from the manifest of its artefact; small, so that tasks can carry it.

    Attributes:
        path: path or URL.
        rows: number of rows.
        sha256: hex digest of the file.
    """

    path: str
    rows: int
    sha256: str

    def map(self) -> tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]:
        """Map the shard: return it as one buffer, and a reader whose arrays are views of that buffer.

        A local shard is compared with its checksum once per process, a remote one each time it is fetched.

        Raises:
            FarspanError: the shard is missing or its bytes are not those of the manifest.
        """
        buffer, reader = map_shard(self.path)
        if not files.is_local(self.path):
            self._compare(buffer)
            return buffer, reader
        state = os.stat(self.path)
        identity = (self.path, self.sha256, state.st_ino, state.st_size, state.st_mtime_ns)
        if identity not in _compared:
            self._compare(buffer)
            _compared.add(identity)
        return buffer, reader

    def batches(self, first: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the record batches from number ``first`` on."""
        _, reader = self.map()
        for index in range(first, reader.num_record_batches):
            yield reader.get_batch(index)

    def _compare(self, buffer: pa.Buffer) -> None:
        if (actual := hashlib.sha256(buffer).hexdigest()) != self.sha256:
            raise unreadable(self.path, f"sha256 {actual} where the manifest says {self.sha256}")


def stored_shards(folder: str, manifest: Manifest) -> list[StoredShard]:
    """Return all shards of the artefact in ``folder``, in order."""
    return [
        StoredShard(os.path.join(folder, "shards", shard.name), shard.rows, shard.sha256) for shard in manifest.shards
    ]
