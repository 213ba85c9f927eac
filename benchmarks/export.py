"""`farspan documents` and `export --to megatron` against Megatron's own preprocessing of the same text.

The peer (`megatron_pool.py`) is a plain restatement of Megatron-LM's preprocess_data.py with megatron-core's builder,
from the packages that `make test-readers` installs. Every side is a whole command, start-up included, run in turn with
the others, with equally many processes. After the first round the `.bin` files of both sides are compared. The export
of a corpus that exists before is compared with the peer's way from text, which is the other way to files for Megatron.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from documents import HERE, children_seconds, quietly
from report import HEADINGS, Comparison, arguments, comparison_rows, machine, publish
from text import real_documents, write_texts

from corpora.storage.manifest_file import read_manifest
from corpora.tokenizers.training import train_byte_level_bpe

PACKAGES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farspan" / "environments" / "megatron"
SEQUENCE_LENGTH = 16_384
GOALS = {"documents + export": 5.0, "export of a corpus": 20.0}


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=3)
    parser.add_argument("--megabytes", type=float, default=100, help="of JSONL")
    parser.add_argument("--files", type=int, default=8, help="that the text lies in")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes, of every side")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="of the byte-level BPE")
    parser.add_argument("--megatron", default=str(PACKAGES), metavar="FOLDER", help="that has megatron-core")
    options = parser.parse_args()
    if not os.path.isdir(os.path.join(options.megatron, "megatron")):
        print(f"left out: {options.megatron} has no megatron-core; make test-readers installs it", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="farspan-export-") as folder:
        write_texts(os.path.join(folder, "text"), options.megabytes, options.files)
        train_byte_level_bpe(real_documents(), options.vocab_size).save(os.path.join(folder, "tokenizer"))
        sides = Sides(folder, options.workers, options.megatron)
        sides.documents()
        sides.corpus()
        runs = {"documents": sides.documents, "export": sides.export, "rows": sides.export_rows, "peer": sides.peer}
        # seconds[clock][side]: one a round
        seconds: dict[str, dict[str, list[float]]] = {clock: {name: [] for name in runs} for clock in ("wall", "CPU")}
        for turn in range(options.rounds):
            for name, run in runs.items():
                shutil.rmtree(sides.place(name), ignore_errors=True)
                wall, processor = time.perf_counter(), children_seconds()
                run()
                seconds["wall"][name].append(time.perf_counter() - wall)
                seconds["CPU"][name].append(children_seconds() - processor)
            if not turn:
                sides.compare()
        tokens = read_manifest(sides.place("documents"), "farspan.documents").totals["tokens"]
    publish(
        f"Export: {options.megabytes:g} MB of JSONL in {options.files} files, {tokens:,} tokens, byte-level BPE of "
        f"{options.vocab_size:,}, {options.workers} processes",
        HEADINGS,
        comparison_rows(
            [
                *compared(seconds["wall"], tokens, "tokens/s"),
                *compared(seconds["CPU"], tokens, "tokens/CPU s"),
            ]
        ),
        machine("gigatoken", "tokenizers", "numpy", "torch", "pyarrow"),
        options.json,
        {"options": vars(options), "tokens": tokens, "seconds": seconds},
    )
    for name in runs:
        wall, processor = (statistics.median(seconds[clock][name]) for clock in ("wall", "CPU"))
        print(f"{name}: {wall:.1f} s, {processor:.1f} s of processor time")


def compared(seconds: dict[str, list[float]], tokens: int, unit: str) -> list[Comparison]:
    """Rates of both ways by one clock."""
    ours = {
        "documents + export": [sum(both) for both in zip(seconds["documents"], seconds["export"], strict=True)],
        "export of a corpus": seconds["rows"],
    }
    peer = [tokens / t for t in seconds["peer"]]
    return [
        Comparison(name, "preprocess_data", unit, [tokens / t for t in times], peer, GOALS[name])
        for name, times in ours.items()
    ]


@dataclass(frozen=True)
class Sides:
    """The commands. Each writes to a folder of its name."""

    folder: str
    workers: int
    megatron: str

    def place(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def documents(self) -> None:
        text, tokenizer = self.place("text"), self.place("tokenizer")
        size = max(path.stat().st_size for path in Path(text).iterdir())  # a file makes a task
        flags = ["--input", f"text={text}/*.jsonl", "--tokenizer", tokenizer, "--task-bytes", str(size)]
        self._farspan("documents", *flags, "--output", self.place("documents"))

    def corpus(self) -> None:
        flags = ["--documents", self.place("documents"), "--sequence-length", str(SEQUENCE_LENGTH)]
        self._farspan("corpus", "random", *flags, "--output", self.place("corpus"))

    def export(self) -> None:
        flags = ["--to", "megatron", "--output", self.place("export")]
        self._farspan("export", self.place("documents"), *flags)

    def export_rows(self) -> None:
        flags = ["--to", "megatron", "--output", self.place("rows")]
        self._farspan("export", self.place("corpus"), *flags)

    def peer(self) -> None:
        os.makedirs(self.place("peer"))
        script, tokenizer = (
            os.path.join(HERE, "megatron_pool.py"),
            os.path.join(self.place("tokenizer"), "tokenizer.json"),
        )
        end = read_manifest(self.place("documents")).tokenizer["owned_tokens"]["<eos>"]
        words = [script, tokenizer, str(end), self.place("text"), self.place("peer/all"), str(self.workers)]
        quietly(["env", f"PYTHONPATH={self.megatron}", sys.executable, *words])

    def compare(self) -> None:
        """Check that farspan's files, one after the other, have the ids of the peer's file."""
        ours = b"".join(path.read_bytes() for path in sorted(Path(self.place("export")).glob("*.bin")))
        assert ours == Path(self.place("peer/all.bin")).read_bytes(), "farspan and the peer differ"

    def _farspan(self, *arguments: str) -> None:
        quietly([sys.executable, "-m", "pipelines.cli", *arguments, "--workers", str(self.workers)])


if __name__ == "__main__":
    main()
