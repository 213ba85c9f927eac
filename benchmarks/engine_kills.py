"""Random `kill -9` of the processes of a job, on each engine: nothing may be lost, repeated or left behind.

    python -m benchmarks.engine_kills [--kills 25] [--engines alone workers cooperative slurm flink]

A job of small tasks (`farspan documents`) is started and one of its processes is killed at a random moment, again and
again, with a new start after each kill where the engine needs one, until the job is finished; then the next job begins.
Checked are: the artefact has the bytes of an undisturbed run, no task with a receipt was begun again, its folder has no
other file, `farspan verify` finds nothing, and no process of the job is left. A line is printed for each kill and job.
Slurm and Flink are started on this machine (`tests/flink/cluster.py`, `../shared/engines`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from pipelines.cli import main
from pipelines.inspect.verify import verify
from tests.artefacts import small_tokenizer

ROOT = Path(__file__).parents[1]
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "wizards", "drink", "tea"]
COMMAND = "-m pipelines documents"
MARK = "FARSPAN_KILLS"  # environment variable of every process of a job, with the job's folder
SITE = """\
import importlib.util, os, sys, time
class Patch:  # each task is listed where it begins, and takes longer
    def find_spec(self, name, path=None, target=None):
        if name == "pipelines.documents.job" and "FARSPAN_KILLS" in os.environ:
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            execute = spec.loader.exec_module
            def patched(module):
                execute(module)
                do = module.TokenizeRanges.__call__
                def slowly(self, task, report):
                    with open(self.output + ".begun", "a") as file:
                        file.write(f"{task.name} {time.time_ns()}\\n")
                    time.sleep(float(os.environ["FARSPAN_PAUSE"]))
                    return do(self, task, report)
                module.TokenizeRanges.__call__ = slowly
            spec.loader.exec_module = patched
            return spec
sys.meta_path.insert(0, Patch())
"""


class Engine:
    """Starts the processes of a job, and kills them."""

    count = 1  # processes that take the command at the same time
    flags: tuple[str, ...] = ()  # of the command
    kinds: ClassVar[dict[str, str]] = {"driver": COMMAND}  # kind of process that is killed -> words of its command line

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        threads, pause = {"OMP_NUM_THREADS": "1"}, {"FARSPAN_PAUSE": "0.3"}
        self._forks: dict[int, Path] = {}
        self.environment = {**os.environ, **threads, **pause, "PYTHONPATH": f"{folder}/site:{ROOT}"}

    def command(self, output: Path) -> list[str]:
        """Words of the command."""
        job = ["documents", "--task-bytes=1000", "--input", f"a={self.folder}/texts/*.jsonl"]
        return [*job, "--tokenizer", f"{self.folder}/tokenizer", "--output", str(output), *self.flags]

    def start(self, output: Path) -> None:
        """Start one process of the job: a fork of this one, which has imported all that it needs."""
        if pid := os.fork():
            self._forks[pid] = output
            return
        status = 1
        try:
            os.environ |= {**self.environment, MARK: str(output)}
            log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            main(self.command(output))
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            os._exit(status)

    def processes(self, output: Path) -> dict[int, str]:
        """Process id -> command line of the processes of a job."""
        for pid in [pid for pid in self._forks if os.waitpid(pid, os.WNOHANG)[0]]:
            del self._forks[pid]
        return {pid: COMMAND for pid, of in self._forks.items() if of == output} | marked(output)

    def started(self, output: Path) -> int:
        """Processes with the command that run, or will."""
        return sum(COMMAND in line for line in self.processes(output).values())

    def victims(self, output: Path) -> list[tuple[str, int]]:
        """Kind and number of each process that may be killed."""
        running = self.processes(output)
        return [(kind, pid) for kind, words in self.kinds.items() for pid, line in running.items() if words in line]

    def kill(self, kind: str, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Alone(Engine):
    """The driver, which works itself."""

    flags = ("--workers=1",)


class Workers(Engine):
    """The driver, or one of its two workers."""

    flags = ("--workers=2",)
    kinds: ClassVar = {"driver": COMMAND, "worker": "-m pipelines.engine.local"}


class Cooperative(Engine):
    """One of three processes."""

    count, flags = 3, ("--engine=cooperative", "--lease=8")
    kinds: ClassVar = {"process": COMMAND}


class Slurm(Cooperative):
    """One of two jobs on a cluster of two nodes."""

    count = 2

    def __enter__(self) -> Slurm:
        self._script = Path(os.environ.get("FARSPAN_ENGINES", ROOT.parent / "shared" / "engines"), "slurm-cluster")
        self._place = self.folder / "slurm"
        if (kept := Path(tempfile.gettempdir(), "farspan-slurm", "root")).exists():  # the packages, unpacked by a test
            self._place.mkdir()
            (self._place / "root").symlink_to(kept)
        done = subprocess.run([self._script, "start", self._place], capture_output=True, text=True, check=True)
        told = dict(word.split("=", 1) for word in shlex.split(done.stdout.splitlines()[-1])[1:])
        self.environment |= told | {"PATH": told["PATH"].replace("$PATH", os.environ["PATH"])}
        return self

    def start(self, output: Path) -> None:
        command = [sys.executable, "-P", "-m", "pipelines", *self.command(output)]
        resources = ["--cpus-per-task=1", "--mem=0", "--no-requeue", f"--chdir={ROOT}"]
        resources += ["--open-mode=append", f"--output={self.folder}/log", f"--wrap=exec {shlex.join(command)}"]
        environment = {**self.environment, MARK: str(output)}
        subprocess.run(["sbatch", *resources], env=environment, stdout=subprocess.DEVNULL, check=True)

    def started(self, output: Path) -> int:
        ask = ["squeue", "--noheader", "--states=PENDING,CONFIGURING", "--format=%A"]
        waiting = subprocess.run(ask, env=self.environment, capture_output=True, text=True, check=True).stdout.split()
        return super().started(output) + len(waiting)

    def __exit__(self, *error: object) -> None:
        subprocess.run([self._script, "stop", self._place], check=True)


class Flink(Engine):
    """The driver, or one of two TaskManagers, which is started again."""

    def __enter__(self) -> Flink:
        from tests.flink.cluster import Cluster

        (self.folder / "cluster").mkdir()
        self.cluster = Cluster(self.folder / "cluster", keeps_classes=True).__enter__()
        worker = self.folder / "worker.sh"
        worker.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m pipelines.harness "$@"\n')
        worker.chmod(0o755)
        return self

    def command(self, output: Path) -> list[str]:
        passed = {name: self.environment[name] for name in ("PYTHONPATH", "OMP_NUM_THREADS", "FARSPAN_PAUSE")}
        config = {"command": str(self.folder / "worker.sh"), "env": {**passed, MARK: str(output)}}
        return [*super().command(output), *self.cluster.flags(), f"--environment_config={json.dumps(config)}"]

    def victims(self, output: Path) -> list[tuple[str, int]]:
        at_work = any("pipelines.harness" in line for line in self.processes(output).values())
        managers = [("TaskManager", number) for number in range(2)] if at_work else []
        return [*super().victims(output), *managers]

    def kill(self, kind: str, number: int) -> None:
        if kind != "TaskManager":
            super().kill(kind, number)
            return
        self.cluster.kill_task_manager(number)
        self.cluster.start_task_manager(number)

    def __exit__(self, *error: object) -> None:
        self.cluster.__exit__(*error)


ENGINES = {"alone": Alone, "workers": Workers, "cooperative": Cooperative, "slurm": Slurm,
           "flink": Flink}  # fmt: skip


def marked(output: Path) -> dict[int, str]:
    """Process id -> command line of the processes whose environment names the job's folder; no zombies."""
    mark, found = f"{MARK}={output}\0".encode(), {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (place / "environ").read_bytes():
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def preload(folder: Path) -> None:
    """Import what the processes of jobs need, before they are forked."""
    sys.path.insert(0, str(folder / "site"))  # which a driver hands on to its workers
    os.environ |= {MARK: "", "FARSPAN_PAUSE": "0"}
    exec(SITE, {})
    for name in ("pipelines.documents.job", "pipelines.engine.beam.pipeline", "pipelines.engine.beam.engine"):
        import_module(name)
    del os.environ[MARK]


def receipts(output: Path) -> dict[str, int]:
    """Task with a receipt -> time of its writing, in ns."""
    found = {}
    for path in output.glob("_work/documents-*.json"):
        with suppress(FileNotFoundError):  # the job ended
            found[path.stem] = path.stat().st_mtime_ns
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make_input(folder: Path, draw: random.Random, files: int) -> None:
    small_tokenizer().save(str(folder / "tokenizer"))
    for name in ("texts", "site"):
        (folder / name).mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    for number in range(files):
        lines = [json.dumps({"text": " ".join(draw.choices(WORDS, k=draw.randint(1, 60)))}) for _ in range(20)]
        (folder / "texts" / f"{number:02d}.jsonl").write_text("\n".join(lines))


def disturb(engine: Engine, output: Path, draw: random.Random, most: int) -> Counter[str]:
    """Run a job to its end, killing up to ``most`` of its processes; kind -> number killed."""
    killed: Counter[str] = Counter()
    written: dict[str, int] = {}  # receipt -> time
    before, last = 0, time.monotonic() + 1800  # receipts at the last kill; seconds
    while not (output / "manifest.json").exists():
        if time.monotonic() > last:
            said = (engine.folder / "log").read_text()[-2000:]
            raise TimeoutError(f"{output} is not finished; processes: {engine.processes(output)}; log: {said}")
        for _ in range(engine.count - engine.started(output)):
            engine.start(output)
        time.sleep(draw.uniform(0.3, 2))
        for name, time_ns in receipts(output).items():
            assert written.setdefault(name, time_ns) == time_ns, f"{name} was written again"
        victims = engine.victims(output)
        if len(written) > before and killed.total() < most and victims and not (output / "manifest.json").exists():
            kind = draw.choice(sorted({kind for kind, _ in victims}))
            engine.kill(*draw.choice([victim for victim in victims if victim[0] == kind]))
            before = len(written)
            killed[kind] += 1
            print(f"{time.strftime('%H:%M:%S')} {output.name}: killed a {kind} at {before} receipts", flush=True)
    last = time.monotonic() + 90  # a worker without its TaskManager waits 60 s for an answer
    while left := engine.processes(output):
        assert time.monotonic() < last, f"orphans: {left}"
        time.sleep(0.2)
    require_unrepeated(output, written)
    return killed


def require_unrepeated(output: Path, written: dict[str, int]) -> None:
    """Check that no task was begun after its receipt was written."""
    lines = Path(f"{output}.begun").read_text().split("\n")[:-1]
    for name, begun in map(str.split, lines):
        late = int(begun) - written.get(name, int(begun))
        assert late < 100_000_000, f"{name} was begun {late / 1e9:.1f} s after its receipt"


def undisturbed(folder: Path) -> dict[str, bytes]:
    """The files of a run without kills, in this process; its compiled kernels are then loaded, here and in forks."""
    main([*Engine(folder).command(folder / "expected"), "--engine=cooperative"])
    return contents(folder / "expected")


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=25, help="on each engine")
    parser.add_argument("--engines", nargs="+", choices=[*ENGINES], default=[*ENGINES])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, default=24, help="of a job's input")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="farspan-kills-") as name:
        make_input(Path(name), random.Random(given.seed), given.files)
        preload(Path(name))
        whole = undisturbed(Path(name))
        for engine_name in given.engines:
            kills: Counter[str] = Counter()
            draw, jobs = random.Random(f"{given.seed} {engine_name}"), 0
            with ENGINES[engine_name](Path(name)) as engine:
                while kills.total() < given.kills:
                    output = Path(name) / f"{engine_name}-{jobs}"
                    kills += disturb(engine, output, draw, min(8, given.kills - kills.total()))
                    jobs += 1
                    assert contents(output) == whole, f"{output} differs"
                    assert verify(str(output)) == []
            told = ", ".join(f"{count} of a {kind}" for kind, count in sorted(kills.items()))
            print(f"{engine_name}: {kills.total()} kills in {jobs} jobs ({told}): bytes equal, nothing repeated, "
                  "nothing left, verify clean", flush=True)  # fmt: skip


if __name__ == "__main__":
    run()
