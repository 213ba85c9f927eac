"""The shards of a remote artefact that are mapped on local disk: those asked for, and the few read last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence, Set
from typing import Any

import pyarrow as pa

Mapped = tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]


class FetchedShards:
    """The mapped shards of a remote artefact, and objects derived from their record batches."""

    def __init__(self, open_shard: Callable[[int], Mapped], sizes: Sequence[int], last: int) -> None:
        """
        Args:
            open_shard: fetches and maps a shard by number.
            sizes: bytes of each shard.
            last: number of most recently read shards to keep, in addition to those that ``keep`` names.
        """
        self._open, self._sizes, self._last, self._kept = open_shard, sizes, last, frozenset[int]()
        self._shards: dict[int, tuple[Mapped, dict[Any, Any]]] = {}  # the last used one is last
        self._lock = threading.Lock()

    def __call__(self, shard: int) -> Mapped:
        return self._entry(shard)[0]

    def __contains__(self, shard: int) -> bool:
        return shard in self._shards

    def derived(self, shard: int) -> dict[Any, Any]:
        """Return the objects derived from the record batches of a shard; callers add to them."""
        return self._entry(shard)[1]

    def add(self, shard: int, mapped: Mapped) -> None:
        with self._lock:
            self._shards.setdefault(shard, (mapped, {}))

    def keep(self, shards: Set[int], room: float = 0) -> int:
        """Keep these shards, and of the others those used last, up to ``room`` bytes in all; return the bytes kept."""
        with self._lock:
            self._kept = frozenset(shards)
            size = sum(self._sizes[shard] for shard in self._shards.keys() | shards)
            for shard in self._list_unkept():
                if size > room:
                    del self._shards[shard]
                    size -= self._sizes[shard]
            return size

    def _entry(self, shard: int) -> tuple[Mapped, dict[Any, Any]]:
        with self._lock:
            entry = self._shards.pop(shard, None)
            if entry is not None:
                self._shards[shard] = entry
                return entry
        mapped = self._open(shard)  # takes long: other shards can be read meanwhile
        with self._lock:
            entry = self._shards.setdefault(shard, (mapped, {}))
            unkept = self._list_unkept()
            for other in unkept[: max(len(unkept) - self._last, 0)]:
                del self._shards[other]
            return entry

    def _list_unkept(self) -> list[int]:
        return [shard for shard in self._shards if shard not in self._kept]
