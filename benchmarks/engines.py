"""Start-up of an engine, and what a task costs on it, against worker processes of this machine, with and without Beam.

    python benchmarks/engines.py --tasks 40,240 --rounds 3 -- --runner=FlinkRunner --flink_master=localhost:8081 ...

Each task tokenises one document of a few words. The time of a job with few tasks is the start-up; the difference to one
with many, divided by the number of tasks between, is the cost of a task: its own work, and the engine's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from report import arguments, machine, publish

from corpora.tokenizers.training import train_byte_level_bpe

TEXT = "The quick brown fox jumps over the lazy dog. "


def main() -> None:
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    parser = arguments(__doc__.partition("\n")[0], rounds=3)
    parser.add_argument("--tasks", default="40,240", help="of the small and of the large job")
    parser.add_argument("--workers", type=int, default=2, help="processes of this machine; give as many elsewhere")
    options = parser.parse_args(words[:split])
    few, many = sorted(int(number) for number in options.tasks.split(","))
    workers = [f"--workers={options.workers}"]
    engines = {"this machine": workers, "Beam's embedded runner": ["--engine=beam"]}
    if words[split + 1 :]:
        engines["the other engine"] = words[split + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        train_byte_level_bpe([TEXT * 50], 300).save(f"{folder}/tokenizer")
        for number in (few, many):
            write(f"{folder}/{number}", number)
        times: dict[tuple[str, int], list[float]] = {}
        for turn in range(options.rounds):
            for name, flags in engines.items():
                for number in (few, many):
                    seconds = timed(folder, number, f"{name.replace(' ', '-')}-{number}-{turn}", flags)
                    times.setdefault((name, number), []).append(seconds)
    rows = []
    for name in engines:
        small, large = (statistics.median(times[name, number]) for number in (few, many))
        rows.append((name, f"{small:.1f}", f"{large:.1f}", f"{(large - small) / (many - few) * 1000:.0f}"))
    publish(
        f"Engines, {options.rounds} rounds, {options.workers} workers",
        ("engine", f"seconds of {few} tasks", f"of {many} tasks", "ms a task"),
        rows,
        machine("apache-beam"),
        options.json,
        {f"{name}, {number} tasks": seconds for (name, number), seconds in times.items()},
    )


def write(folder: str, files: int) -> None:
    """``files`` files of one document each."""
    os.makedirs(folder)
    for number in range(files):
        with open(f"{folder}/{number:05d}.jsonl", "w") as file:
            file.write(json.dumps({"text": TEXT}) + "\n")


def timed(folder: str, number: int, output: str, flags: Sequence[str]) -> float:
    """Seconds of ``farspan documents`` with a task a file."""
    command = [sys.executable, "-P", "-m", "pipelines", "documents", "--input", f"{folder}/{number}", "--task-bytes=1"]
    command += ["--tokenizer", f"{folder}/tokenizer", "--output", f"{folder}/{output}", *flags]
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
