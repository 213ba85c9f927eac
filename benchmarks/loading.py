"""Ready batches a second from a corpus in a store that answers late, through a cache that is smaller than the corpus.

The store is a folder of this machine in which every request waits. Each round begins with an empty cache and reads one
epoch. For comparison: the same data on local disk, and what a global order costs there without a copy: each row of a
batch needs the record batch that it lies in, fetched by a range request, as a row is no unit of the format and has no
checksum of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from loader import GPUS, SECONDS_A_SEQUENCE, spread
from made_corpus import make_corpus, make_masks
from obstore.store import LocalStore
from report import arguments, machine, publish

from corpora.storage import files
from corpora.storage.manifest_file import read_manifest
from corpora.storage.shard_cache import ShardCache
from corpora.storage.stores import connect
from corpora.storage.stores.object_store import ObjectStore
from objectives.api.protocol import load_objective
from trainer.data.loader import Loader, LoadingConfig, prefetch
from trainer.data.remote_shards import ShardsAhead
from trainer.recipe import Recipe, load_recipe
from trainer.run.sources import open_stages

HEADINGS = (
    "data",
    "sequences/s",
    "lowest..highest",
    "needed",
    "times the need",
    "requests a sequence",
    "KB a sequence",
)


class Late:
    """``late://data``: a folder of this machine as an object store, with a wait before each request.

    Attributes:
        wait: seconds.
        requests, read: how many, and bytes, since they were set to 0.
    """

    wait, requests, read = 0.0, 0, 0

    @classmethod
    def serve(cls, folder: str) -> None:
        ask = ObjectStore._ask

        def late(self: ObjectStore, request: str, *arguments: Any, **options: Any) -> Any:
            time.sleep(cls.wait)
            answer = ask(self, request, *arguments, **options)
            cls.requests += 1
            cls.read += answer.range[1] - answer.range[0] if request == "get" else 0
            return answer

        ObjectStore._ask = late  # type: ignore[method-assign]
        connect.CLIENTS["late"] = lambda root, options, retry: LocalStore(prefix=folder)


@dataclass(frozen=True)
class Measured:
    rate: float
    requests: float
    read: float


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=3)
    parser.add_argument("--recipe", default="bart_ls_large")
    parser.add_argument("--sequences", type=int, default=2_048, help="of the corpus")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--latency", type=float, default=20, help="of a request, in milliseconds")
    parser.add_argument("--shuffle-shards", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64, help="sequences of a step; a shard has more")
    parser.add_argument("--micro-batch", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="farspan-loading-") as folder:
        data = load_recipe(options.recipe).data
        corpus, masks = os.path.join(folder, "corpus"), os.path.join(folder, "masks")
        Late.serve(folder)
        make_corpus(corpus, options.sequences, data.source_length, options.shards)
        span = {"target_length": data.target_length, "fit": "reduce"}
        make_masks(masks, corpus, load_objective("span", "bart_ls", span))
        largest = sum(max(shard.bytes for shard in read_manifest(name).shards) for name in (corpus, masks))
        whole = sum(shard.bytes for name in (corpus, masks) for shard in read_manifest(name).shards)
        size = int(1.4 * 3 * options.shuffle_shards * largest)
        late = f"late, cache of {size / whole:.0%}"
        for turn in range(options.rounds + 1):
            for name, root in (("local", folder), (late, "late://data")):
                Late.wait = 0.0
                recipe = load_recipe(
                    options.recipe,
                    [
                        f"data.corpus={root}/corpus",
                        f"data.masks={root}/masks",
                        f"data.shuffle_shards={options.shuffle_shards}",
                        f"run.micro_batch_size={options.micro_batch}",
                        f"run.batch_size={options.batch}",
                    ],
                )
                cache = os.path.join(folder, "cache")
                rate = an_epoch(recipe, options, ShardCache(size, cache) if root != folder else None)
                if turn:  # the first one compiles
                    found.setdefault(name, []).append(rate)
            Late.wait = 0.0
            if turn:
                measured = by_ranges("late://data/corpus", options.latency / 1000)
                found.setdefault("late, global order by ranges", []).append(measured)
    need = GPUS / SECONDS_A_SEQUENCE
    rows = []
    for name, all_measured in found.items():
        rates = [one.rate for one in all_measured]
        typical, last = statistics.median(rates), all_measured[-1]
        rows.append(
            (
                name,
                *spread(rates),
                f"{need:,.0f}",
                f"{typical / need:.1f}x",
                f"{last.requests:.2f}",
                f"{last.read / 1000:,.0f}",
            )
        )
    publish(
        f"Ready batches of {options.recipe} from a store with {options.latency:g} ms a request",
        HEADINGS,
        rows,
        machine("numpy", "pyarrow", "numba", "torch"),
        options.json,
        {"options": vars(options), "need": need, "cache": size, "data": whole},
    )


def an_epoch(recipe: Recipe, options: argparse.Namespace, cache: ShardCache | None) -> Measured:
    """One epoch with an empty cache."""
    if cache:
        shutil.rmtree(str(cache.folder), ignore_errors=True)
    (stage, *_) = recipe.curriculum
    mixtures = open_stages([stage], cache=cache)
    if cache:
        for rows in mixtures[0].cached:
            rows.keep(frozenset())
        shutil.rmtree(str(cache.folder), ignore_errors=True)
    loader = Loader([stage], mixtures, recipe.run.seed, ahead=ShardsAhead.of([stage], mixtures, recipe.run.seed))
    steps = options.sequences // stage.batch_size
    Late.wait, Late.requests, Late.read = options.latency / 1000, 0, 0
    start, count = time.perf_counter(), 0
    with closing(loader.ahead) if loader.ahead else nullcontext():
        with prefetch(loader, LoadingConfig(), steps) as batches:
            for step in range(steps):
                count += sum(len(batch.source_ids) for batch in batches.step(step))
        seconds = time.perf_counter() - start
    return Measured(count / seconds, Late.requests / count, Late.read / count)


def by_ranges(corpus: str, wait: float, rows: int = 128, threads: int = 32) -> Measured:
    """Random rows, each with the record batch that it lies in; the footers are read before, without a wait."""
    manifest = read_manifest(corpus)
    sizes = [shard.rows for shard in manifest.shards]
    paths = [f"{corpus}/shards/{shard.name}" for shard in manifest.shards]
    readers = [[pa.ipc.open_file(pa.PythonFile(files.open(path), "r")) for path in paths] for _ in range(threads)]
    rng = np.random.default_rng(0)
    places = [(int(shard), int(rng.integers(sizes[shard]))) for shard in rng.integers(0, len(sizes), rows)]
    Late.wait, Late.requests, Late.read = wait, 0, 0

    def read(number: int) -> None:
        for shard, row in places[number::threads]:
            readers[number][shard].get_batch(row // manifest.rows_per_batch)

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, range(threads)))
    seconds = time.perf_counter() - start
    return Measured(rows / seconds, Late.requests / rows, Late.read / rows)


if __name__ == "__main__":
    main()
