"""The remote shards that a dataset has mapped: those of the batch that is made, and those read last."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from weakref import WeakSet

import torch

from corpora.errors import FarspanError
from corpora.storage.sharded_rows import ShardedRows

Shard = tuple[ShardedRows, int]


class MappedShards:
    """Keeps the remote shards that were read last mapped, so that the next batch need not open them again."""

    def __init__(self, artefacts: Sequence[ShardedRows]) -> None:
        self._artefacts, self._process = artefacts, os.getpid()
        self._cache = min((rows.bounded for rows in artefacts if rows.bounded), key=lambda cache: cache.size)
        self._last: dict[Shard, None] = {}  # the last one read is last
        _all_mapped.add(self)

    def hold(self, needed: Sequence[Shard]) -> None:
        """Map the shards of a batch, and keep earlier ones mapped in half of the cache.

        The workers of a loader share that half, and so do the datasets of a process. If there is no room for all, this
        process first gives back what it has, and waits for its turn: two that both wait for what the other one has
        would wait until both give up.
        """
        if os.getpid() != self._process:
            raise FarspanError(
                f"{self._artefacts[0].folder}: a process that was forked cannot use its parent's connection to the "
                "store; give DataLoader multiprocessing_context='spawn'"
            )
        self.require(_bytes(needed), "the shards of a batch")
        self._keep(needed)
        if all(rows.fetch(shard) for rows, shard in needed):
            return
        self._trim(0)
        with self._cache.turn():
            self._keep(needed)
            for rows, shard in needed:
                rows.shard(shard)

    def rest(self) -> None:
        """Keep no more than a share of half of the cache, once a batch is made."""
        self._trim(self._share())

    def _keep(self, needed: Sequence[Shard]) -> None:
        now = dict.fromkeys(needed)
        with _keeping:
            self._last = {shard: None for shard in self._last if shard not in now} | now
        self._trim(max(self._share(), _bytes(needed)))

    def _share(self) -> int:
        """Bytes that this process may keep between batches."""
        worker = torch.utils.data.get_worker_info()
        return int(self._cache.size) // (2 * (worker.num_workers if worker else 1))

    def _trim(self, room: int) -> None:
        """Keep the shards that were read last, from all datasets of the process, as many as fit into ``room`` bytes."""
        with _keeping:
            for mapped in (self, *(other for other in _all_mapped if other is not self)):
                room -= mapped._keep_last(room)

    def _keep_last(self, room: int) -> int:
        """Keep those of this dataset, and return their bytes."""
        kept, taken = [], 0
        for shard in reversed(self._last):
            if taken + _bytes([shard]) > room:
                break
            taken += _bytes([shard])
            kept.append(shard)
        self._last = dict.fromkeys(reversed(kept))
        for rows in self._artefacts:
            rows.keep({number for other, number in kept if other is rows})
        return taken

    def require(self, needed: int, shards: str) -> None:
        """Check that the cache holds shards of ``needed`` bytes."""
        if needed > self._cache.size:
            raise FarspanError(
                f"{self._artefacts[0].folder}: cache_gib is {self._cache.size / 2**30:g}, and {shards} need "
                f"{needed / 2**30:.3g}; raise it, or read in the order of Dataset.sampler, with few shards in a group"
            )


_all_mapped: WeakSet[MappedShards] = WeakSet()  # of all datasets of this process
_keeping = threading.Lock()


def _bytes(shards: Iterable[Shard]) -> int:
    return sum(rows.manifest.shards[number].bytes for rows, number in shards)
