"""One cluster of C4's size on one machine: neighbours and links of up to 1.4 million vectors of 768 numbers.

C4 has 365 million documents, 256 clusters of 1.43 million; the other 255 are the same work. The vectors are divided
into 256 clusters to see what that costs, and then taken as one, in which neighbours are sought. Each job runs in a
process of its own, whose peak resident memory, mapped files included, the system keeps. Processor time is that of the
job alone: the same command again, which finds all done, says what its start takes. A run that was stopped goes on where
it was: ``--folder`` keeps the artefacts and what was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from report import arguments, machine, publish
from synthetic import DIMENSION, make_documents, make_vectors
from threadpoolctl import threadpool_limits

from corpora.retrieval.kmeans import centroid_count
from corpora.retrieval.knn import nearest
from corpora.storage.manifest_file import read_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from corpora.storage.shards import list_shards
from pipelines.engine.job import WORK
from pipelines.retrieval.neighbours import ClusterShard

QUERIES = 200
HEADINGS = (
    "documents",
    "job",
    "seconds",
    "CPU",
    "us/document",
    "exponent",
    "peak memory",
    "recall of 10 / k",
    "stages",
)


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=1)
    parser.add_argument("--documents", default="20000,60000,200000", help="sizes, with commas; C4's is 1400000")
    parser.add_argument("--k", type=int, default=100, help="neighbours")
    parser.add_argument("--probes", type=int, default=32, help="lists a document visits")
    parser.add_argument("--exact-up-to", type=int, default=20_000, help="smaller clusters are searched exactly")
    parser.add_argument("--threads", type=int, default=1, help="of the search")
    parser.add_argument("--no-link", action="store_true", help="stop after the neighbours")
    parser.add_argument("--folder", help="where artefacts stay, to go on later (default: deleted at the end)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="farspan-scale-") as temporary:
        steps: list[Step] = []
        for count in map(int, options.documents.split(",")):
            steps += measured(options.folder or temporary, count, options)
    publish(
        f"One cluster, {options.k} neighbours, {options.threads} threads",
        HEADINGS,
        [cells(step, steps[: steps.index(step)]) for step in steps],
        machine("faiss-cpu", "numba", "numpy", "pyarrow"),
        options.json,
        {"options": vars(options), "steps": [asdict(step) for step in steps]},
    )


@dataclass
class Step:
    """One job on one cluster."""

    documents: int
    name: str
    seconds: float  # on the clock; `processor` are those that it computed after its start
    processor: float
    memory: int  # peak resident bytes of its process
    stages: dict[str, float]  # name -> seconds on the clock; the first one's start with the process
    recall: dict[str, float] = field(default_factory=dict)  # of the search, name -> share


def cells(step: Step, before: list[Step]) -> tuple[str, ...]:
    smaller = [other for other in before if other.name == step.name and other.documents < step.documents]
    exponent = ""
    if smaller:
        ratio = step.processor / smaller[-1].processor
        exponent = f"{np.log(ratio) / np.log(step.documents / smaller[-1].documents):.2f}"
    return (
        f"{step.documents:,}",
        step.name,
        f"{step.seconds:,.1f}",
        f"{step.processor:,.1f}",
        f"{1e6 * step.processor / step.documents:,.0f}",
        exponent,
        f"{step.memory / 2**30:.2f} GiB",
        " / ".join(f"{share:.3f}" for share in step.recall.values()),
        ", ".join(f"{name} {seconds:,.1f}" for name, seconds in step.stages.items()),
    )


def measured(folder: str, count: int, options: argparse.Namespace) -> list[Step]:
    place = os.path.join(folder, f"{count}")
    names = ("documents", "vectors", "256-clusters", "one-cluster", "neighbours", "corpus")
    documents, vectors, clusters, cluster, neighbours, corpus = (os.path.join(place, name) for name in names)
    make_documents(documents, count)
    make_vectors(vectors, documents, count)
    search = [
        f"--{name}={getattr(options, name.replace('-', '_'))}" for name in ("k", "probes", "exact-up-to", "threads")
    ]
    divide = ["cluster", "--vectors", vectors]
    centroids = str(centroid_count(256, count))
    commands = {
        "cluster": [*divide, "--centroids", centroids, "--output", clusters],
        "one cluster": [*divide, "--centroids", "1", "--max-documents", str(count), "--output", cluster],
        "neighbours": ["neighbours", "--clusters", cluster, *search, "--output", neighbours],
    }
    if not options.no_link:
        sources = ["--documents", documents, "--neighbours", neighbours]
        commands["link"] = ["corpus", "linked", *sources, "--sequence-length", "16384", "--output", corpus]
    steps = []
    for name, command in commands.items():
        kept = os.path.join(place, f"{name}.json")
        if not os.path.exists(kept):
            step = Step(count, name, **run([*command, "--workers", "1"], command[-1]))
            step.processor -= run([*command, "--workers", "1"], command[-1])["processor"]
            if name == "neighbours":
                step.recall = recall(cluster, neighbours)
            with open(kept, "w") as file:
                json.dump(asdict(step), file)
        with open(kept) as file:
            steps.append(Step(**json.load(file)))
        print(*cells(steps[-1], []), sep="  ", file=sys.stderr)
    return steps


def run(command: list[str], output: str) -> dict[str, Any]:
    """Time, memory and stages of one ``farspan`` command, as a ``Step`` has them."""
    start = time.time()
    process = subprocess.Popen([sys.executable, "-m", "pipelines.cli", *command], stdout=sys.stderr)
    receipts: dict[str, float] = {}  # stage -> when its last task ended
    ended = 0
    while not ended:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        for name, moment in finished_tasks(os.path.join(output, WORK)):
            stage = name.partition("-")[0]
            receipts[stage] = max(receipts.get(stage, 0.0), moment)
        time.sleep(0.05)
    if status:
        raise SystemExit(f"farspan {' '.join(command)} failed")
    ends = sorted(receipts.items(), key=lambda item: item[1])
    starts = [start, *(moment for _, moment in ends)]
    return {
        "seconds": time.time() - start,
        "processor": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss << 10,  # KiB on Linux
        "stages": {stage: moment - before for (stage, moment), before in zip(ends, starts, strict=False)},
    }


def finished_tasks(work: str) -> list[tuple[str, float]]:
    """Name and time of each receipt that is there now."""
    try:
        entries = [entry for entry in os.scandir(work) if entry.name.endswith(".json") and entry.name != "job.json"]
        return [(entry.name.removesuffix(".json"), entry.stat().st_mtime) for entry in entries]
    except FileNotFoundError:  # before the job begins, and when it has ended
        return []


def recall(cluster: str, neighbours: str) -> dict[str, float]:
    """The manifest's figure, over ten true neighbours of 256 documents; and over all k, of 200."""
    totals = read_manifest(neighbours).totals
    shard = ClusterShard(list_shards(cluster, read_manifest(cluster))[0], DIMENSION)
    rows = (np.arange(QUERIES) * len(shard) // QUERIES).astype(np.int32)
    found = ShardedRows(neighbours, "farspan.neighbours")
    k = found.manifest.config["k"]
    with threadpool_limits(len(os.sched_getaffinity(0))):
        true = nearest(shard.vectors, shard.vectors[rows], k, rows).rows
    hits = 0
    for batch, line, names in zip(*found.locate(rows)[1:], true, strict=True):
        lists = Ragged.from_arrow(found.batch(0, int(batch)).column("neighbours"))
        hits += len(np.intersect1d(lists[int(line)], names))
    return {"of 10": totals["sampled_found"] / totals["sampled_in_cluster"], "of k": hits / true.size}


if __name__ == "__main__":
    main()
