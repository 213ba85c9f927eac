"""Pages of ``farspan view``: any row of a large corpus, with the masks of a mask set.

A corpus of short rows is written by the shard writer, and masks of T5's spans beside it. Measured are: opening both;
the content of a page and its HTML, in this process; the page over HTTP, from a server of its own; each for rows drawn
at random; and the table of all rows. Before the first of these, the system forgets the files, so that the bytes read
from disk can be counted; all others find them in memory as far as they have been read.
"""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from made_corpus import make_masks
from report import arguments, machine, publish
from starlette.testclient import TestClient
from synthetic import save_tokenizer

from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch, corpus_schema
from corpora.storage.manifest import Manifest, Receipt, fold
from corpora.storage.manifest_file import list_files, write_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.shards import shard_name, write_shard
from objectives.api.protocol import load_objective
from pipelines.pages.options import View
from pipelines.view.app import build_app
from pipelines.view.command import open_workspace
from pipelines.view.workspace import Workspace

PARTS = 3  # documents of a row
ROWS_PER_BATCH = 64
HEADINGS = ("what", "median ms", "95th percentile", "highest")


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=200)
    parser.add_argument("--rows", type=int, default=1_000_000, help="sequences")
    parser.add_argument("--length", type=int, default=96, help="tokens of a row")
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--folder", help="where to make the corpus, and keep it (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="farspan-view-") as temporary:
        corpus, masks = (os.path.join(options.folder or temporary, name) for name in ("corpus", "masks"))
        if not os.path.exists(os.path.join(masks, "manifest.json")):
            make_corpus(corpus, options.rows, options.length, options.shards)
            make_masks(masks, corpus, load_objective("span", "t5", {}))
        places = np.random.default_rng(1).integers(0, options.rows, 3 * options.rounds).reshape(3, -1).tolist()
        measured, facts = measure(corpus, masks, places)
    sizes = f"{options.rows:,} rows of {options.length} tokens in {options.shards} shards, {facts['size_mb']:,.0f} MB"
    table = [
        (name, f"{np.median(ms):.1f}", f"{np.percentile(ms, 95):.1f}", f"{max(ms):.1f}")
        for name, ms in measured.items()
    ]
    publish(f"View: {sizes}", HEADINGS, table, machine("pyarrow", "starlette", "uvicorn"), options.json, measured)
    print(f"read from disk for opening and {options.rounds} pages never read before: {facts['read_mb']:.1f} MB")


def measure(
    corpus: str, masks: str, places: Sequence[Sequence[int]]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Milliseconds by what was done, and the size of the artefacts and what was read of them, in MB."""
    files = [path for folder in (corpus, masks) for path in Path(folder, "shards").iterdir()]
    for path in files:
        forget(path)
    measured: dict[str, list[float]] = {}
    before = bytes_read()
    opened: list[Workspace] = []
    measured["opening"] = [
        milliseconds(lambda: opened.append(open_workspace(View(artefact=(corpus,), masks=(masks,)))))
    ]
    client = TestClient(build_app(opened[0], "token"), base_url="http://127.0.0.1")
    client.get("/token/corpus/0")  # compiles the templates
    measured["a page that was never read"] = [ask(client, row) for row in places[0]]
    read = bytes_read() - before
    measured["a page, files in memory"] = [ask(client, row) for row in places[1]]
    measured["the table of all rows, first"] = [ask(client, "")]
    for sort in ("-tokens", "-hidden-0"):
        measured[f"the table sorted by {sort[1:]}, first"] = [ask(client, f"?sort={sort}")]
    measured["the table filtered by hidden share, first"] = [ask(client, "?least_hidden=16&sort=-tokens")]
    measured["a page of the sorted table, afterwards"] = [
        ask(client, f"?sort=-tokens&start={row}") for row in places[1]
    ]
    measured["a page over HTTP"] = over_http(corpus, masks, places[2])
    size = sum(path.stat().st_size for path in files)
    return measured, {"size_mb": size / 1e6, "read_mb": read / 1e6}


def ask(client: TestClient, row: int | str) -> float:
    def get() -> None:
        assert client.get(f"/token/corpus/{row}").status_code == 200

    return milliseconds(get)


def over_http(corpus: str, masks: str, rows: Sequence[int]) -> list[float]:
    """Milliseconds from request to the last byte of each page, from ``farspan view`` in a process of its own."""
    command = [sys.executable, "-m", "pipelines", "view", corpus, "--masks", masks]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            address = re.match(r"http://([^/]+)(/.*/)", server.stdout.readline())
            assert address
            connection = http.client.HTTPConnection(address[1])

            def get(row: int) -> None:
                connection.request("GET", f"{address[2]}corpus/{row}")
                answer = connection.getresponse()
                assert answer.status == 200
                assert len(answer.read()) > 1000

            get(0)
            return [milliseconds(lambda row=row: get(row)) for row in rows]  # type: ignore[misc]
        finally:
            server.terminate()


def milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def forget(path: Path) -> None:
    """Drop a file from the system's cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_read() -> int:
    """Bytes that this process has had read from disk, those of mapped files included."""
    return int(re.findall(r"^read_bytes: (\d+)", Path("/proc/self/io").read_text(), re.MULTILINE)[0])


def make_corpus(folder: str, rows: int, length: int, shards: int) -> None:
    """A corpus of ``rows`` sequences of ``length`` random tokens in three documents each."""
    tokenizer = save_tokenizer(folder)
    schema, receipts = corpus_schema(tokenizer["vocab_size"]), []
    for shard, numbers in enumerate(np.array_split(np.arange(rows), shards)):
        path = os.path.join(folder, "shards", shard_name(shard, shards))
        with write_shard(path, schema, ROWS_PER_BATCH) as (writer, info):
            writer.write(sequences(numbers, length).to_arrow(schema))
        totals = {"sequences": len(numbers), "tokens": len(numbers) * length, "padding": 0, "max_tokens": length}
        totals |= dict.fromkeys(("parts", "documents"), PARTS * len(numbers)) | {"max_documents": PARTS}
        receipts.append(Receipt(str(shard), tuple(info), totals, {"made": {"read": PARTS * len(numbers)}}))
    config = {"builder": "random", "sequence_length": length + 1, "room_per_sequence": 1, "room_per_document": 0}
    head = Manifest("farspan.corpus", config, 0, ROWS_PER_BATCH, tokenizer, **fold(receipts), files=list_files(folder))
    write_manifest(folder, head)


def sequences(numbers: np.ndarray, length: int) -> SequenceBatch:
    """Rows ``(n,)`` ``numbers``."""
    count = len(numbers)
    ids = np.zeros((count, 16), np.uint8)
    ids[:, :8] = numbers[:, None].view(np.uint8)
    cuts = np.linspace(0, length, PARTS + 1).astype(np.int32)
    several = np.full(count, PARTS)
    starts = Ragged.from_lengths(np.tile(cuts[:-1], count), several)
    names = pa.array([f"made:{number}" for number in range(PARTS * int(numbers[0]), PARTS * (int(numbers[-1]) + 1))])
    offsets = pa.array(np.arange(0, PARTS * count + 1, PARTS, dtype=np.int32))
    tokens = np.random.default_rng(int(numbers[0])).integers(4, 260, count * length, np.uint16)
    return SequenceBatch(
        sequence_ids=ids,
        tokens=Ragged.from_lengths(tokens, np.full(count, length)),
        document_starts=starts,
        document_ids=pa.ListArray.from_arrays(offsets, names),
        document_offsets=Ragged.from_lengths(np.zeros(PARTS * count, np.int32), several),
        document_lengths=Ragged.from_lengths(np.tile(np.diff(cuts).astype(np.int32), count), several),
        sentence_starts=starts,
        cluster_ids=np.full(count, NO_CLUSTER),
    )


if __name__ == "__main__":
    main()
