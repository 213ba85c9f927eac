"""Documents into one path by their neighbours: ours against in-context pretraining's, in time, memory and path weight.

Every run is a process of its own that maps the same neighbour lists from files. Memory is what the process allocates
(anonymous) at its peak beyond what it had when the work began; imports and compilation come before. A path weighs what
its steps do together: the similarity of two documents of which either has the other in its list, else nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from iclm_chains import CHAIN, LOOKED_AT, published_algorithm, published_code
from report import arguments, machine, publish

SIDES = {
    "ours": "`link`, policy path",
    "code": f"published code: {LOOKED_AT - 1} neighbours, chains of {CHAIN}",
    "wide": "published code: all neighbours, chains without end",
    "paper": "published algorithm",
}
TOPIC = 500  # documents
DIMENSIONS = 32
TOKENS = 300  # of a document, on average


@dataclass
class Run:
    """One process: seconds and bytes of the work alone; what the path weighs and how often it begins again."""

    side: str
    documents: int
    neighbours: int
    seconds: float
    memory: int
    weight: float
    breaks: int


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=3)
    parser.add_argument("--documents", type=int, nargs="+", default=[100_000])
    parser.add_argument("--neighbours", type=int, nargs="+", default=[9, 20, 100], help="in each document's list")
    parser.add_argument("--run", metavar="SIDE", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measured(options.run, options.folder)))
        return
    runs = [
        run
        for documents in options.documents
        for neighbours in options.neighbours
        for run in compared(documents, neighbours, options.rounds)
    ]
    publish(
        f"One path through all documents, {options.rounds} rounds",
        ("documents", "neighbours", "side", "seconds", "time", "MiB", "memory", "path weight", "of ours", "breaks"),
        table(runs),
        machine("numpy", "numba"),
        options.json,
        {"runs": [asdict(run) for run in runs]},
    )


def compared(documents: int, neighbours: int, rounds: int) -> list[Run]:
    """All sides in turn on the same lists."""
    runs = []
    with tempfile.TemporaryDirectory(prefix="farspan-chains-") as folder:
        write_lists(folder, documents, neighbours)
        rows, weights = (np.load(os.path.join(folder, f"{name}.npy")) for name in ("neighbours", "similarities"))
        for _ in range(rounds):
            for side in SIDES:
                command = [sys.executable, __file__, "--run", side, "--folder", folder]
                found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
                order = np.load(os.path.join(folder, "order.npy"))
                assert np.array_equal(np.sort(order), np.arange(documents)), f"{side}: not every document once"
                runs.append(Run(side, documents, neighbours, **found, **path_weight(order, rows, weights)))
    return runs


def write_lists(folder: str, documents: int, neighbours: int) -> None:
    """``neighbours.npy`` (n, k + 1) int32, the document itself first, and ``similarities.npy``, float32.

    Documents are noise around topics, and topics are a random walk, so that neighbouring ones run into each other.
    Neighbours are exact among the documents of a topic and of the ones before and after it; cosines are rounded to half
    precision.
    """
    rng = np.random.default_rng(0)
    topics = max(1, documents // TOPIC)
    centres = np.cumsum(rng.normal(size=(topics, DIMENSIONS)), axis=0)
    topic = np.sort(rng.integers(0, topics, documents))
    vectors = centres[topic] + rng.normal(size=(documents, DIMENSIONS))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    edges = np.searchsorted(topic, np.arange(topics + 1))
    names = rng.permutation(documents)  # so that numbers tell nothing of topics
    rows = np.empty((documents, neighbours + 1), np.int32)
    weights = np.empty((documents, neighbours + 1), np.float32)
    for number in range(topics):
        near = slice(edges[max(number - 1, 0)], edges[min(number + 2, topics)])
        own = np.arange(edges[number], edges[number + 1])
        cosines = (vectors[own] @ vectors[near].T).astype(np.float16).astype(np.float32)
        cosines[np.arange(len(own)), own - near.start] = 2  # itself first
        best = np.argsort(-cosines, axis=1, kind="stable")[:, : neighbours + 1]
        rows[names[own]] = names[best + near.start]
        weights[names[own]] = np.take_along_axis(cosines, best, axis=1)
    np.save(os.path.join(folder, "neighbours.npy"), rows)
    np.save(os.path.join(folder, "similarities.npy"), weights)
    np.save(os.path.join(folder, "lengths.npy"), rng.geometric(1 / TOKENS, documents))


def path_weight(order: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
    """Weight of all steps together, and how many weigh nothing."""
    one, other = order[:-1], order[1:]
    ahead, back = (np.where(rows[a] == b[:, None], weights[a], -np.inf) for a, b in ((one, other), (other, one)))
    steps = np.maximum(ahead.max(axis=1), back.max(axis=1))
    return {"weight": float(steps[np.isfinite(steps)].sum()), "breaks": int((~np.isfinite(steps)).sum())}


def measured(side: str, folder: str) -> dict[str, float]:
    """Do one side's work, write ``order.npy``; seconds and bytes."""
    rows, weights, lengths = (
        np.asarray(np.load(os.path.join(folder, f"{name}.npy"), mmap_mode="r"))
        for name in ("neighbours", "similarities", "lengths")
    )
    small = np.array([[0, 1], [1, 0]], np.int32), np.ones((2, 2), np.float32), np.ones(2, np.int64)
    for array in small:
        array.setflags(write=False)  # as the mapped ones: compiled code is made for one kind of array
    prepared(side, *small)()
    for array in (rows, weights, lengths):
        array.sum()  # read before the clock runs
    work = prepared(side, rows, weights, lengths)
    before = anonymous()
    with Peak() as peak:
        start = time.perf_counter()
        order = work()
        seconds = time.perf_counter() - start
    np.save(os.path.join(folder, "order.npy"), np.asarray(order, np.int64))
    return {"seconds": seconds, "memory": peak.bytes - before}


def prepared(side: str, rows: np.ndarray, weights: np.ndarray, lengths: np.ndarray) -> Callable[[], Sequence[int]]:
    """The work of one side, its inputs at hand: the order of all documents."""
    if side == "code":
        return lambda: published_code(rows)
    if side == "wide":
        return lambda: published_code(rows, rows.shape[1], len(rows))
    if side == "paper":
        return lambda: published_algorithm(rows, weights)
    from corpora.linking.graph import Graph
    from corpora.linking.options import Linking
    from corpora.linking.policies import link
    from corpora.packing.options import Packing
    from corpora.storage.ragged import Ragged

    lists = Ragged(rows.reshape(-1), np.arange(len(rows) + 1) * rows.shape[1])
    graph = Graph(lists, weights.reshape(-1), np.zeros(rows.size, bool))
    keys = np.random.default_rng(0).integers(0, 2**64, (len(rows), 2), np.uint64)

    def path() -> list[int]:
        """Of the finished sequences: documents in the order in which they begin."""
        linked = link(graph, lengths, keys, Packing(sequence_length=16_384), Linking(policy="path"))
        return linked.parts.values[linked.offsets == 0].tolist()

    return path


def table(runs: list[Run]) -> list[tuple[str, ...]]:
    """Medians over rounds; times and memory as a ratio to ours, with the worst and the best round."""
    cells: list[tuple[str, ...]] = []
    for documents, neighbours in dict.fromkeys((run.documents, run.neighbours) for run in runs):
        of = {
            side: [run for run in runs if (run.documents, run.neighbours, run.side) == (documents, neighbours, side)]
            for side in SIDES
        }
        for side, found in of.items():
            cells.append(
                (
                    f"{documents:,}",
                    f"{neighbours}",
                    SIDES[side],
                    f"{statistics.median(run.seconds for run in found):.2f}",
                    ratios([run.seconds for run in found], [run.seconds for run in of["ours"]]),
                    f"{statistics.median(run.memory for run in found) / 2**20:,.1f}",
                    ratios([run.memory for run in found], [run.memory for run in of["ours"]]),
                    f"{found[0].weight:,.0f}",
                    f"{found[0].weight / of['ours'][0].weight:.2%}",
                    f"{found[0].breaks:,}",
                )
            )
    return cells


def ratios(theirs: list[float], ours: list[float]) -> str:
    rounds = [one / other for one, other in zip(theirs, ours, strict=True)]
    return f"{statistics.median(rounds):.1f}x ({min(rounds):.1f}..{max(rounds):.1f})"


class Peak:
    """The most anonymous memory of this process while it is entered, looked at 500 times a second."""

    def __enter__(self) -> Peak:
        self.bytes, self._done = anonymous(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.002):
            self.bytes = max(self.bytes, anonymous())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.bytes = max(self.bytes, anonymous())


def anonymous() -> int:
    """Bytes that this process has allocated and touched."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))


if __name__ == "__main__":
    main()
