"""`farspan documents` and `corpus random` against a bare process pool and against datatrove, on the same text.

Every side is a command of its own, run in turn with the others. The first rows are rates of whole commands, with their
start-up (imports, worker processes, loading the tokenizer). For the others, start-up is measured by the same command on
3 documents a file, and subtracted: what remains is the rate of a run that is long enough not to care. Where too little
remains, the text was too small, and no rate is printed. Before that, the tokens of all sides are compared, and the
sentences of the two that split.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
from report import HEADINGS, Comparison, arguments, comparison_rows, machine, publish
from text import real_documents, write_texts

from corpora.storage.manifest_file import read_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.shards import read_shard
from corpora.tokenizers.training import train_byte_level_bpe

HERE = os.path.dirname(os.path.abspath(__file__))
SEQUENCE_LENGTH = 16_384
DOCUMENTS_AT_START = 3
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
Seconds = dict[str, dict[str, dict[str, list[float]]]]


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=3)
    parser.add_argument("--megabytes", type=float, default=100, help="of JSONL")
    parser.add_argument("--files", type=int, default=8, help="that the text lies in")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes, of every side")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="of the byte-level BPE")
    parser.add_argument("--datatrove-python", metavar="PATH", help="a Python that has datatrove; without, no such row")
    options = parser.parse_args()
    # orphans become our children: datatrove does not wait for its workers' end, and only who is waited for is counted
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    if not options.datatrove_python:
        print("without --datatrove-python PATH datatrove is left out", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="farspan-documents-") as folder:
        whole, start = os.path.join(folder, "whole"), os.path.join(folder, "start")
        write_texts(whole, options.megabytes, options.files)
        first_documents(whole, start)
        train_byte_level_bpe(real_documents(), options.vocab_size).save(os.path.join(folder, "tokenizer"))
        sides = Sides(folder, options.workers, options.datatrove_python)
        runs: dict[str, Callable[[str], None]] = {"documents": sides.documents, "corpus": sides.corpus}
        runs |= {"pool": sides.pool} | ({"datatrove": sides.datatrove} if options.datatrove_python else {})
        # seconds[clock][side]["start" or "whole"]: one a round
        seconds: Seconds = {clock: {name: {"start": [], "whole": []} for name in runs} for clock in ("wall", "CPU")}
        for turn in range(options.rounds + 1):
            for name, run in runs.items():
                for text in (start, whole) if turn else (start,):  # the first turn only warms up
                    shutil.rmtree(sides.output(name, text), ignore_errors=True)
                    wall, processor = time.perf_counter(), children_seconds()
                    run(text)
                    if turn:
                        seconds["wall"][name][os.path.basename(text)].append(time.perf_counter() - wall)
                        seconds["CPU"][name][os.path.basename(text)].append(children_seconds() - processor)
        tokens = compare(sides, whole, "datatrove" in runs)
    comparisons, short = [], []
    for clock, unit in (("wall", "tokens/s"), ("CPU", "tokens/CPU s")):
        for apart in (False, True):
            try:
                comparisons += compared(seconds[clock], tokens, unit, apart)
            except ShortRun as error:
                short.append(str(error))
    versions = machine("gigatoken", "tiktoken", "nupunkt", "tokenizers", "apache-beam", "pyarrow")
    if options.datatrove_python:
        versions["datatrove"] = f"{sides.peer_version('datatrove')} (tokenizers {sides.peer_version('tokenizers')})"
    publish(
        f"Documents: {options.megabytes:g} MB of JSONL in {options.files} files, {tokens:,} tokens, byte-level BPE of "
        f"{options.vocab_size:,}, {options.workers} processes",
        HEADINGS,
        comparison_rows(comparisons),
        versions,
        options.json,
        {"options": vars(options), "tokens": tokens, "seconds": seconds, "ratios": [row.ratio for row in comparisons]},
    )
    for name, times in seconds["wall"].items():
        whole_run, start_up = (statistics.median(times[part]) for part in ("whole", "start"))
        print(f"{name}: {whole_run:.1f} s, of which start-up {start_up:.1f} s")
    if short:
        raise SystemExit("\n".join(short))


class ShortRun(Exception):
    """Start-up took most of a run, so that the difference says nothing."""


def children_seconds() -> float:
    """Processor time of all ended children; unlike wall time, hardly touched by what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compared(seconds: dict[str, dict[str, list[float]]], tokens: int, unit: str, apart: bool) -> list[Comparison]:
    """Rates by one clock, of whole commands, or with their start-up set apart; ShortRun if nothing can be told then."""
    starts = {name: statistics.median(times["start"]) if apart else 0.0 for name, times in seconds.items()}
    net = {name: [t - starts[name] for t in times["whole"]] for name, times in seconds.items()}
    if short := [name for name, times in net.items() if min(times) < starts[name]]:
        raise ShortRun(
            f"{', '.join(short)}: start-up takes longer than the work ({unit}), so no rate without it can be told; "
            "give more --megabytes"
        )
    net["both"] = [documents + corpus for documents, corpus in zip(net["documents"], net["corpus"], strict=True)]
    rates = {name: [tokens / t for t in times] for name, times in net.items()}
    pairs = [("both", "datatrove", 5.0), ("both", "pool", 0.8), ("documents", "pool", None)]
    end = ", without start-up" if apart else ""
    names = {"both": f"documents + corpus random{end}", "documents": f"documents alone{end}"}
    peers = {"pool": "bare process pool", "datatrove": "datatrove, tokens only"}
    return [
        Comparison(names[ours], peers[peer], unit, rates[ours], rates[peer], None if apart else goal)
        for ours, peer, goal in pairs
        if peer in rates
    ]


def first_documents(whole: str, start: str) -> None:
    """Files of the same names with few documents each."""
    os.makedirs(start)
    for name in os.listdir(whole):
        with open(os.path.join(whole, name), "rb") as source, open(os.path.join(start, name), "wb") as file:
            file.writelines(islice(source, DOCUMENTS_AT_START))


@dataclass(frozen=True)
class Sides:
    """The commands. A run on text folder X writes to a folder of its own name and X's."""

    folder: str
    workers: int
    datatrove_python: str | None

    def output(self, name: str, text: str) -> str:
        return os.path.join(self.folder, f"{name}-{os.path.basename(text)}")

    def documents(self, text: str) -> None:
        # a file makes a task, for the few documents as for the many
        task_bytes = max(os.path.getsize(os.path.join(text, name)) for name in os.listdir(text))
        tokenizer = os.path.join(self.folder, "tokenizer")
        self._farspan(
            "documents",
            "--input",
            f"text={text}/*.jsonl",
            "--tokenizer",
            tokenizer,
            "--task-bytes",
            str(task_bytes),
            "--output",
            self.output("documents", text),
        )

    def corpus(self, text: str) -> None:
        self._farspan(
            "corpus",
            "random",
            "--documents",
            self.output("documents", text),
            "--sequence-length",
            str(SEQUENCE_LENGTH),
            "--output",
            self.output("corpus", text),
        )

    def pool(self, text: str) -> None:
        self._script(sys.executable, "bare_pool.py", "pool", text)

    def datatrove(self, text: str) -> None:
        assert self.datatrove_python
        self._script(self.datatrove_python, "datatrove_pipeline.py", "datatrove", text)

    def peer_version(self, name: str) -> str:
        code = f"from importlib.metadata import version; print(version({name!r}))"
        return subprocess.run(
            [str(self.datatrove_python), "-c", code], check=True, capture_output=True, text=True
        ).stdout.strip()

    def _farspan(self, *arguments: str) -> None:
        quietly([sys.executable, "-m", "pipelines.cli", *arguments, "--workers", str(self.workers)])

    def _script(self, python: str, script: str, name: str, text: str) -> None:
        tokenizer = os.path.join(self.folder, "tokenizer", "tokenizer.json")
        quietly([python, os.path.join(HERE, script), tokenizer, text, self.output(name, text), str(self.workers)])


def quietly(command: list[str]) -> None:
    """Run a command until all processes that it started have ended, so that their processor time is counted, too."""
    done = subprocess.run(command, capture_output=True, text=True)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def compare(sides: Sides, text: str, datatrove: bool) -> int:
    """Check that all sides made the same; return how many tokens."""
    tokens, sentences = farspan_documents(sides.output("documents", text))
    pool = sides.output("pool", text)
    pooled = [
        np.concatenate([np.load(os.path.join(pool, name)) for name in sorted(os.listdir(pool)) if f".{kind}." in name])
        for kind in ("tokens", "lengths", "sentences")
    ]
    for ours, theirs in zip((tokens.values, tokens.lengths, sentences), pooled, strict=True):
        assert np.array_equal(ours, theirs), "farspan and the bare pool differ"
    if datatrove:
        place = os.path.join(sides.output("datatrove", text), "tokens")
        files = [os.path.join(place, name) for name in sorted(os.listdir(place)) if name.endswith(".ds")]
        made = np.concatenate([np.fromfile(path, "<u2") for path in files])
        lengths = np.concatenate([np.diff(np.fromfile(f"{path}.index", "<u8"), prepend=0) for path in files])
        assert np.array_equal(tokens.values, made), "farspan and datatrove differ"
        assert np.array_equal(tokens.lengths, lengths), "farspan and datatrove cut documents differently"
    corpus = read_manifest(sides.output("corpus", text), "farspan.corpus")
    assert corpus.totals["tokens"] == len(tokens.values)
    return len(tokens.values)


def farspan_documents(folder: str) -> tuple[Ragged, np.ndarray]:
    """All documents in the order of the files: rows of tokens, and flat sentence starts."""
    shards = read_manifest(folder, "farspan.documents").shards
    table = pa.Table.from_batches(
        [batch for shard in shards for batch in read_shard(os.path.join(folder, "shards", shard.name))]
    ).combine_chunks()
    columns = [Ragged.from_arrow(table.column(name).chunk(0)).compact() for name in ("tokens", "sentence_starts")]
    return columns[0], columns[1].values


if __name__ == "__main__":
    main()
