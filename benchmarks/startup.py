"""Start-up: whole commands on three small texts, beside a minimal pipeline of datatrove on the same texts.

Sides run in turn, round by round; ratios are of wall-clock and of processor seconds, with the best and the median
round. Nothing is subtracted. The first round, which compiles bytecode, is not counted. A round takes about 10 seconds
of processor time, and each is told as it ends.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from report import arguments, machine, publish
from text import real_documents

from corpora.tokenizers.training import train_byte_level_bpe

HERE = os.path.dirname(os.path.abspath(__file__))
GOALS = {
    "documents": 1.0,
    "corpus random": 1.0,
    "mask": 1.0,
    "show": 0.6,
    "stats": 0.6,
    "verify": 0.6,
    "--help": 0.3,
}
PEER = "datatrove"


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=3)
    parser.add_argument("--datatrove-python", required=True, metavar="PATH", help="a Python that has datatrove")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="of the byte-level BPE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="farspan-startup-") as folder:
        write_texts(os.path.join(folder, "text"))
        train_byte_level_bpe(real_documents(), options.vocab_size).save(os.path.join(folder, "tokenizer"))
        commands = sides(options.datatrove_python)
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for turn in range(options.rounds + 1):
            for made in ("documents", "corpus", "masks", "datatrove"):
                shutil.rmtree(os.path.join(folder, made), ignore_errors=True)
            for name, command in commands.items():
                spent = timed(command, folder)
                if turn:
                    seconds[name].append(spent)
            print(f"round {turn} of {options.rounds}", file=sys.stderr)
    publish(
        "Start-up: whole commands on three texts, as a share of datatrove's whole pipeline on them",
        ("command", "wall s, median", "best", "CPU s, median", "best", "wall ratio", "CPU ratio", "best CPU", "goal"),
        [row(name, seconds[name], seconds[PEER]) for name in commands],
        machine("pyarrow", "numpy", "tokenizers", "nupunkt", "apache-beam"),
        options.json,
        {"seconds": seconds},
    )


def write_texts(folder: str) -> None:
    os.makedirs(folder)
    for number in range(3):
        with open(os.path.join(folder, f"{number}.jsonl"), "w") as file:
            file.write(json.dumps({"text": f"This is text number {number}. It has two sentences, and they are short."}))
            file.write("\n")


def sides(datatrove_python: str) -> dict[str, list[str]]:
    """Name -> command, to be run in this order in one folder."""
    farspan = [sys.executable, "-m", "pipelines"]
    peer = [datatrove_python, os.path.join(HERE, "datatrove_pipeline.py")]
    words = {
        "documents": "documents --input text=text --tokenizer tokenizer --output documents",
        "corpus random": "corpus random --documents documents --sequence-length 512 --output corpus",
        "mask": "mask span --preset t5 --corpus corpus --output masks",
        "show": "show masks",
        "stats": "stats corpus",
        "verify": "verify corpus",
        "--help": "--help",
    }
    return (
        {PEER: [*peer, "tokenizer/tokenizer.json", "text", "datatrove", "1"]}
        | {name: [*farspan, *line.split()] for name, line in words.items()}
        | {"import farspan": [sys.executable, "-c", "import farspan"]}
    )


def timed(command: list[str], folder: str) -> tuple[float, float]:
    """Wall-clock and processor seconds of a command and what it starts."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = os.path.dirname(HERE)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def row(name: str, ours: list[tuple[float, float]], peers: list[tuple[float, float]]) -> tuple[str, ...]:
    """Cells of a table: medians and bests of both clocks, and the median and best ratio to the peer."""
    wall, processor = (list(column) for column in zip(*ours, strict=True))
    ratios = [[own[clock] / peer[clock] for own, peer in zip(ours, peers, strict=True)] for clock in (0, 1)]
    best = min(processor) / min(spent for _, spent in peers)
    cells = (statistics.median(wall), min(wall), statistics.median(processor), min(processor))
    shares = (statistics.median(ratios[0]), statistics.median(ratios[1]), best)
    goal = f"{GOALS[name]:g}x" if name in GOALS else ""
    return (name, *(f"{cell:.2f}" for cell in cells), *(f"{share:.2f}x" for share in shares), goal)


if __name__ == "__main__":
    main()
