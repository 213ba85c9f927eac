"""Random `kill -9` of the processes of a job, on each engine: nothing may be lost, repeated or left behind.

    python -m benchmarks.engine_kills [--kills 10] [--engines embedded cooperative] [--seed 0]

A job of small tasks (`farspan documents`) is started and one of its processes is killed at a random moment, again and
again, with a new start after each kill where the engine needs one, until the job is finished; then the next job begins.
Checked are: the artefact has the bytes of an undisturbed run, no task with a receipt was done again, its folder has no
other file, and `farspan verify` finds nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pipelines.inspect.verify import verify
from tests.artefacts import small_tokenizer

FILES = 24
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "wizards", "drink", "tea"]
SLOWLY = """
import time
from pipelines.documents import tokenize
do = tokenize.TokenizeRanges.__call__
def slowly(self, task, report):
    time.sleep(PAUSE)
    return do(self, task, report)
tokenize.TokenizeRanges.__call__ = slowly
from pipelines.cli import main; main()
"""
ENGINES = {"embedded": (1, ["--workers=1"]), "cooperative": (3, ["--engine=cooperative", "--lease=8"])}
"""Engine -> processes that are started, and its flags."""


def make_input(folder: Path, draw: random.Random) -> None:
    small_tokenizer().save(str(folder / "tokenizer"))
    (folder / "texts").mkdir()
    for number in range(FILES):
        lines = [json.dumps({"text": " ".join(draw.choices(WORDS, k=draw.randint(1, 60)))}) for _ in range(20)]
        (folder / "texts" / f"{number:02d}.jsonl").write_text("\n".join(lines))


def start(folder: Path, output: Path, flags: list[str], pause: float) -> subprocess.Popen[bytes]:
    """Start one process of the job, whose tasks take ``pause`` seconds longer."""
    command = [sys.executable, "-c", SLOWLY.replace("PAUSE", str(pause)), "documents", "--task-bytes=1000", *flags]
    command += [
        "--input",
        f"a={folder}/texts/*.jsonl",
        "--tokenizer",
        str(folder / "tokenizer"),
        "--output",
        str(output),
    ]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def receipts(output: Path) -> dict[str, int]:
    """Receipt -> time of its writing."""
    found = {}
    for path in output.glob("_work/documents-*.json"):
        try:
            found[path.name] = path.stat().st_mtime_ns
        except FileNotFoundError:
            continue  # the job ended
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def disturb(folder: Path, output: Path, engine: str, draw: random.Random, most: int, say: Callable[[str], None]) -> int:
    """Run a job to its end, killing up to ``most`` of its processes; the number killed."""
    count, flags = ENGINES[engine]
    processes, killed = [start(folder, output, flags, 0.3) for _ in range(count)], 0
    seen: dict[str, int] = {}
    before = 0  # receipts at the last kill
    while not (output / "manifest.json").exists() or any(process.poll() is None for process in processes):
        time.sleep(draw.uniform(0.5, 3))
        now = receipts(output)
        repeated = [name for name, written in now.items() if seen.get(name, written) != written]
        assert not repeated, f"{repeated} were written again"
        seen.update(now)
        living = [process for process in processes if process.poll() is None]
        if len(seen) > before and killed < most and living and not (output / "manifest.json").exists():
            before = len(seen)
            victim = draw.choice(living)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            killed += 1
            say(f"{engine}: killed process {victim.pid} at {len(seen)} receipts")
        if not (output / "manifest.json").exists():
            living = [process for process in processes if process.poll() is None]
            processes += [start(folder, output, flags, 0.3) for _ in range(count - len(living))]
    assert all(process.returncode in (0, -signal.SIGKILL) for process in processes), (folder / "log").read_text()[-500:]
    return killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="on each engine")
    parser.add_argument("--engines", nargs="+", choices=[*ENGINES], default=[*ENGINES])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="farspan-kills-") as name:
        folder = Path(name)
        make_input(folder, draw)
        assert start(folder, folder / "expected", ["--workers=1"], 0).wait() == 0, (folder / "log").read_text()
        expected = contents(folder / "expected")
        for engine in given.engines:
            kills = jobs = 0
            while kills < given.kills:
                output = folder / f"{engine}-{jobs}"
                kills += disturb(folder, output, engine, draw, given.kills - kills, print)
                jobs += 1
                assert contents(output) == expected, f"{output} differs"
                assert verify(str(output)) == []
            print(f"{engine}: {kills} kills in {jobs} jobs: bytes equal, nothing repeated, nothing left, verify clean",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
