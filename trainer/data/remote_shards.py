"""Shards of remote data on local disk: fetched ahead of a run's steps, or held for the batches of a dataset."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from weakref import WeakSet

import numpy as np
import torch

from corpora.errors import FarspanError
from corpora.storage.sharded_rows import ShardedRows
from trainer.data.config import ShardedSource
from trainer.data.curriculum import Stage, stage_number
from trainer.data.mixture import Mixture

_THREADS = 8  # shards fetched at a time
_BEHIND = 4  # steps before the current one whose batches threads may still be making
_AHEAD = 1_000  # maximum number of planned steps
_SHARE = 0.75  # part of the cache that a process fills ahead; the rest is for processes that are behind it

Shard = tuple[ShardedRows, int]


class ShardsAhead:
    """Keeps the shards of the current step on local disk, and fetches those of the steps after it, in their order.

    As many steps ahead are planned as fit into three quarters of the cache. A shard that is missing when its batches
    are made is fetched at that moment, and errors are raised only then.
    """

    def __init__(self, curriculum: Sequence[Stage], mixtures: Sequence[Mixture], seed: int) -> None:
        self._curriculum, self._mixtures, self._seed = curriculum, mixtures, seed
        artefacts = [rows for mixture in mixtures for rows in mixture.cached]
        self._artefacts = list({id(rows): rows for rows in artefacts}.values())
        self._budget = _SHARE * min(rows.bounded.size for rows in self._artefacts if rows.bounded)
        self._steps: deque[tuple[int, list[Shard]]] = deque()  # the plan: the step and its shards
        self._lock, self._threads = threading.Lock(), ThreadPoolExecutor(_THREADS, "shards")
        self._requested: set[tuple[int, int]] = set()  # artefact and shard

    @classmethod
    def of(cls, curriculum: Sequence[Stage], mixtures: Sequence[Mixture], seed: int) -> ShardsAhead | None:
        """Make the instance of a loader; None if all data is on local disk."""
        for stage, mixture in zip(curriculum, mixtures, strict=True):
            _check_cache(stage, mixture)
        return cls(curriculum, mixtures, seed) if any(mixture.cached for mixture in mixtures) else None

    def at(self, step: int) -> None:
        """Plan and start the downloads when the batches of ``step`` are about to be made."""
        with self._lock:
            needed = self._plan(step)
            for rows in self._artefacts:
                rows.keep({shard for other, shard in needed if other is rows})
            self._requested &= {(id(rows), shard) for rows, shard in needed}
            for rows, shard in needed:
                if (id(rows), shard) not in self._requested:
                    self._requested.add((id(rows), shard))
                    self._threads.submit(self._fetch, rows, shard)

    def close(self) -> None:
        """Stop fetching, after the downloads in progress."""
        self._requested.clear()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _plan(self, step: int) -> list[Shard]:
        """Shards of the planned steps, from a few before ``step`` on, in the order of their first use."""
        if self._steps and not self._steps[0][0] <= step <= self._steps[-1][0] + 1:
            self._steps.clear()  # not a step of the plan: a resumed run
        while self._steps and self._steps[0][0] < step - _BEHIND:
            self._steps.popleft()
        needed = self._planned()
        while self._steps and self._steps[0][0] < step and _bytes(needed) > self._budget / 2:
            self._steps.popleft()
            needed = self._planned()
        taken = _bytes(needed)
        following = self._steps[-1][0] + 1 if self._steps else step
        while following < min(self._curriculum[-1].last_step, step + _AHEAD):
            shards = self._shards(following)
            taken += _bytes(set(shards) - needed.keys())
            if taken > self._budget and following > step:
                break
            self._steps.append((following, shards))
            needed.update(dict.fromkeys(shards))
            following += 1
        return list(needed)

    def _planned(self) -> dict[Shard, None]:
        return dict.fromkeys(shard for _, shards in self._steps for shard in shards)

    def _shards(self, step: int) -> list[Shard]:
        number = stage_number(self._curriculum, step)
        samples = np.asarray(self._curriculum[number].samples(step), np.int64)
        return self._mixtures[number].shards(samples, self._seed)

    def _fetch(self, rows: ShardedRows, shard: int) -> None:
        if (id(rows), shard) in self._requested:
            with suppress(FarspanError):  # raised again by the step that reads the shard
                if not rows.fetch(shard):  # the cache is full
                    self._requested.discard((id(rows), shard))


def _bytes(shards: Iterable[Shard]) -> int:
    return sum(rows.manifest.shards[shard].bytes for rows, shard in shards)


def _check_cache(stage: Stage, mixture: Mixture) -> None:
    """Check that the cache holds the groups of shards that a step and the next one read."""
    if not mixture.cached:
        return
    needed, weights = 0, sum(part.weight for part in mixture.parts)
    for part in mixture.parts:
        if not isinstance(part.source, ShardedSource) or not part.source.cached:
            continue
        shards = None
        if part.shuffle_shards:
            share = part.share
            group_rows = share.size / len(share.shards) * share.together
            groups = 1 + math.ceil(2 * stage.batch_size * part.weight / weights / group_rows)
            shards = groups * share.together
        needed += part.source.most_bytes(shards)
    size = min(rows.bounded.size for rows in mixture.cached if rows.bounded)
    if needed > _SHARE * size:
        shuffled = stage.data.shuffle_shards
        cure = "lower it" if shuffled else "set it to a few shards (another order of the samples)"
        raise FarspanError(
            f"loading.cache_gib is {size / 2**30:g}, but with {stage.section}.shuffle_shards {shuffled} the remote "
            f"data needs {needed / _SHARE / 2**30:.3g}; {cure}, or raise loading.cache_gib"
        )


class MappedShards:
    """Maps the remote shards of a dataset's batches, and keeps those that were read last for the next batch.

    Nothing tells which batch follows, so nothing is fetched ahead.
    """

    def __init__(self, artefacts: Sequence[ShardedRows]) -> None:
        self._artefacts, self._process = artefacts, os.getpid()
        self._cache = min((rows.bounded for rows in artefacts if rows.bounded), key=lambda cache: cache.size)
        _of_process.update(artefacts)

    def hold(self, needed: Sequence[Shard]) -> None:
        """Map the shards of a batch.

        If there is no room for all, this process first gives back what it has, and waits for its turn: two that both
        wait for what the other one has would wait until both give up.
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
        for rows in list(_of_process):
            rows.keep(frozenset())
        with self._cache.turn():
            self._keep(needed)
            for rows, shard in needed:
                rows.shard(shard)

    def release(self) -> None:
        """Keep no more than a share of half of the cache, once a batch is made."""
        self._keep(())

    def _keep(self, needed: Sequence[Shard]) -> None:
        """Keep these shards mapped, and others in half of the cache, which all workers and datasets of a process share.

        This dataset comes first: its artefacts have equal parts of the half, and other datasets what is left.
        """
        worker = torch.utils.data.get_worker_info()
        room = self._cache.size / (2 * (worker.num_workers if worker else 1))
        part = room / len(self._artefacts)
        for rows in self._artefacts:
            room -= rows.keep({number for other, number in needed if other is rows}, part)
        for rows in set(_of_process) - set(self._artefacts):
            room -= rows.keep(frozenset(), room)

    def require(self, needed: int, shards: str) -> None:
        """Check that the cache holds shards of ``needed`` bytes."""
        if needed > self._cache.size:
            raise FarspanError(
                f"{self._artefacts[0].folder}: cache_gib is {self._cache.size / 2**30:g}, and {shards} need "
                f"{needed / 2**30:.3g}; raise it, or read in the order of Dataset.sampler, with few shards in a group"
            )


_of_process: WeakSet[ShardedRows] = WeakSet()  # the artefacts of all datasets of this process
