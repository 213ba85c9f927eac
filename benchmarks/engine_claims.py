"""Cost of the cooperative engine's claims: a plan of C4's size (89,000 tasks) shared by processes that do no work.

    python -m benchmarks.engine_claims [--store] [--tasks 89000] [--processes 4] [--place /dev/shm]

Each task writes its receipt and nothing else. Printed is the CPU time of a task; with --store, also the requests that
it would make of an object store: claims are listed as often as there, and every operation on files is counted as the
requests that it takes (a listing is one for each thousand names, as a deletion is). The files lie in memory by default.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

from corpora.storage import files
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.stores.local_disk import LocalDisk
from pipelines.engine import participant
from pipelines.engine.claims import listing_cost
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job

LISTED = 1000  # names in the answer to a request
TOKENIZER = {"fingerprint": "", "vocab_size": 1, "owned_tokens": {}}


def nothing(task: Task, report: Any) -> Receipt:
    return Receipt(task.name, totals={"documents": 0, "tokens": 0})


def plan(output: str, tasks: int) -> Job:
    """A job of one stage whose tasks have the sizes of a corpus of many files: equal but for a tail."""
    sizes = [1 << 26 if index % 10 else (index * 7919) % (1 << 26) for index in range(tasks)]
    null = Stage("null", [Task(f"null-{index:05d}", {}, size) for index, size in enumerate(sizes)], nothing, "bytes")
    head = Manifest("farspan.neighbours", {"split": "train"}, 0, 64, TOKENIZER)
    return Job(output, head, [null], lambda folder: None, 0)


class Requests(Counter[str]):
    """Counts operations on files as requests to an object store."""

    def watch(self) -> None:
        kinds = {"create": "PUT", "create_new": "PUT", "exists": "HEAD", "size": "HEAD", "open": "GET"}
        for name, kind in kinds.items():
            self._wrap(name, lambda given, answer, kind=kind: self.update([kind]))
        self._wrap("renew", lambda given, answer: self.update(["HEAD", "PUT"]))
        for name in ("walk", "names"):
            self._wrap(name, lambda given, answer: self.update({"LIST": 1 + len(answer) // LISTED}))
        self._wrap("delete", lambda given, answer: self.update({"DELETE": -(-len(given) // LISTED)}))

    def _wrap(self, name: str, count: Any) -> None:
        before = getattr(LocalDisk, name)

        def wrapped(disk: LocalDisk, given: Any, *rest: Any) -> Any:
            answer: Any = ()
            try:
                answer = before(disk, given, *rest)
                return answer
            finally:
                count(given, answer)

        setattr(LocalDisk, name, wrapped)


def take_part(output: str, tasks: int, as_store: bool) -> tuple[float, Counter[str]]:
    """Take part in the job; the seconds of CPU and the requests of this process."""
    job, requests = plan(output, tasks), Requests()
    if as_store:
        requests.watch()
        vars(participant)["listing_cost"] = lambda files, local: listing_cost(files, local=False)
    begun = time.process_time()
    with redirect_stderr(StringIO()):
        run_job(job, Engine(engine="cooperative"))
    return time.process_time() - begun, Counter(requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=89_000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--place", default="/dev/shm", help="a folder")
    parser.add_argument("--store", action="store_true", help="claim as on an object store, and count requests")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.place) as folder:
        output, start = f"{folder}/job", time.perf_counter()
        with ProcessPoolExecutor(given.processes) as pool:
            parts = [pool.submit(take_part, output, given.tasks, given.store) for _ in range(given.processes)]
            shares = [part.result() for part in parts]
        seconds = time.perf_counter() - start
        left = [path for path in files.walk(output) if not path.endswith(("manifest.json", "README.md"))]
    assert not left, left[:3]
    cpu, requests = sum(own for own, _ in shares), sum((counted for _, counted in shares), Counter[str]())
    print(f"{given.tasks:,} tasks, {given.processes} processes: {seconds:,.0f} s, {cpu:,.0f} s of CPU, "
          f"{cpu / given.tasks * 1e3:.2f} ms of CPU a task")  # fmt: skip
    for kind, number in sorted(requests.items()):
        print(f"{kind:>12}: {number:>9,}  {number / given.tasks:.2f} a task")


if __name__ == "__main__":
    main()
