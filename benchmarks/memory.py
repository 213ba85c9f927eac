"""Peak memory of `farspan documents` and `farspan corpus random` as the text grows: it must not.

The memory of the driver and of all its worker processes is added up 50 times a second. *Anonymous* memory is what the
job allocates; *resident* adds pages of mapped files, which the system drops when it needs the room, and which are
counted once for each process that maps them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from report import arguments, machine, publish
from text import real_documents, write_texts

from corpora.storage.manifest_file import read_manifest
from corpora.tokenizers.training import train_byte_level_bpe

INTERVAL = 0.02
FILE_MEGABYTES = 25


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=1)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[200, 1000], help="of JSONL, one run for each")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--sequence-length", type=int, default=16_384)
    options = parser.parse_args()
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="farspan-memory-") as folder:
        tokenizer = os.path.join(folder, "tokenizer")
        train_byte_level_bpe(real_documents(), 32_000).save(tokenizer)
        for megabytes in options.megabytes:
            for turn in range(options.rounds):
                place = os.path.join(folder, f"{megabytes:g}-{turn}")
                runs += measured(place, megabytes, tokenizer, options.workers, options.sequence_length)
    headings = ("job", "text", "tokens", "seconds", "peak anonymous", "peak resident", "against the smallest text")
    publish(
        f"Memory: {options.workers} worker processes, sequences of {options.sequence_length:,}",
        headings,
        [cells(run, next(first for first in runs if first.job == run.job)) for run in runs],
        machine("apache-beam", "pyarrow", "numpy"),
        options.json,
        {"options": vars(options), "runs": [vars(run) for run in runs]},
    )


@dataclass
class Run:
    """One job: bytes at the peak, over all its processes."""

    job: str
    megabytes: float
    tokens: int
    seconds: float
    anonymous: int
    resident: int


def cells(run: Run, smallest: Run) -> tuple[str, ...]:
    return (
        run.job,
        f"{run.megabytes:g} MB",
        f"{run.tokens:,}",
        f"{run.seconds:.0f}",
        f"{run.anonymous / 2**20:,.0f} MiB",
        f"{run.resident / 2**20:,.0f} MiB",
        f"{run.anonymous / smallest.anonymous:.2f}x, {run.resident / smallest.resident:.2f}x",
    )


def measured(folder: str, megabytes: float, tokenizer: str, workers: int, length: int) -> list[Run]:
    text, documents, corpus = (os.path.join(folder, name) for name in ("text", "documents", "corpus"))
    write_texts(text, megabytes, max(1, round(megabytes / FILE_MEGABYTES)))
    packing = ["--sequence-length", str(length)]
    jobs = {
        "documents": ["documents", "--input", f"text={text}/*.jsonl", "--tokenizer", tokenizer, "--output", documents],
        "corpus random": ["corpus", "random", "--documents", documents, *packing, "--output", corpus],
    }
    runs = []
    for job, command in jobs.items():
        start = time.perf_counter()
        anonymous, resident = peak([sys.executable, "-m", "pipelines.cli", *command, "--workers", str(workers)])
        tokens = read_manifest(command[command.index("--output") + 1]).totals["tokens"]
        runs.append(Run(job, megabytes, tokens, time.perf_counter() - start, anonymous, resident))
    return runs


def peak(command: Sequence[str]) -> tuple[int, int]:
    """Run a command; peak anonymous and resident bytes of it and its descendants."""
    anonymous = resident = 0
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        while process.poll() is None:
            sizes = [memory(pid) for pid in family(process.pid)]
            anonymous = max(anonymous, sum(size[0] for size in sizes))
            resident = max(resident, sum(size[1] for size in sizes))
            time.sleep(INTERVAL)
        if process.returncode:
            log.seek(0)
            raise SystemExit(f"{' '.join(command)}\n{log.read()[-3000:].decode(errors='replace')}")
    return anonymous, resident


def memory(pid: int) -> tuple[int, int]:
    """Anonymous and resident bytes of a process; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
    except OSError:
        return 0, 0
    kibibytes = [int(fields.get(name, "0 kB").split()[0]) for name in ("RssAnon", "VmRSS")]
    return kibibytes[0] << 10, kibibytes[1] << 10


def family(root: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


if __name__ == "__main__":
    main()
