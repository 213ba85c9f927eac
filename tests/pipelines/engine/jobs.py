"""Small jobs for processes that share them, and the processes, forked from a server; raw text for larger jobs."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Manifest, Receipt, ShardInfo
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.artefacts import small_tokenizer
from tests.killing import FORKS

WORDS = "the quick brown fox jumps over a lazy dog. Wizards drink café au lait! 世界 is wide; isn't it?".split()
TOKENIZER = {"fingerprint": "", "vocab_size": 1, "owned_tokens": {}}


def cooperative(lease: int = 4, grace: int = 1) -> Engine:
    return Engine(engine="cooperative", lease=lease, grace=grace)


def shared_job(output: str, sizes: Mapping[str, int], trouble: Mapping[str, Any] | None = None) -> Job:
    """A job whose first stage writes a file a task, and whose second one reads all of them and writes shards.

    Args:
        sizes: task of the first stage -> size.
        trouble: task -> what it does before its work; see ``_first``.
    """
    names = [*sizes]
    first = [Task(name, {"output": output, **(trouble or {}).get(name, {})}, size) for name, size in sizes.items()]
    second = [Task(f"join-{index}", {"output": output, "read": names, "shard": index}, 1) for index in range(3)]
    stages = [Stage("write", first, _first, "bytes"), Stage("join", second, _second, "tasks")]
    head = Manifest("farspan.neighbours", {"split": "train"}, 0, 64, TOKENIZER)
    return Job(output, head, stages, lambda folder: None, 0)


def _first(task: Task, report: Any) -> Receipt:
    """Sleep, speak, fail, or die, as the payload says; log the attempt; write a file."""
    payload, output = task.payload, task.payload["output"]
    if "log" in payload:
        Path(payload["log"], f"{task.name}-{os.getpid()}-{time.time_ns()}").touch()
    time.sleep(payload.get("sleep", 0))
    if "note" in payload:
        note(payload["note"])
    if payload.get("fail"):
        raise FarspanError(payload["fail"])
    if "sick" in payload:
        with open(payload["sick"], "a+") as file:
            file.seek(0)
            if len(file.read().split()) < payload["times"]:
                file.write(f"{os.getpid()}\n")
                raise OSError(payload.get("number", 5), "Input/output error")
    if "exit" in payload:
        os._exit(payload["exit"])
    if payload.get("die") and (payload["die"] == "always" or not os.path.exists(payload["die"])):
        if payload["die"] != "always":
            Path(payload["die"]).touch()
        with files.create(f"{output}/shards/left-behind"):
            os.kill(os.getpid(), signal.SIGKILL)
    write_bytes(f"{output}/_work/{task.name}.bin", task.name.encode())
    report(1)
    return Receipt(task.name, totals={"documents": 1, "tokens": 2})


def _second(task: Task, report: Any) -> Receipt:
    import hashlib

    output, index = task.payload["output"], task.payload["shard"]
    data = b"".join(files.read_bytes(f"{output}/_work/{name}.bin") for name in task.payload["read"])
    name = f"part-{index:05d}-of-00003.arrow"
    write_bytes(f"{output}/shards/{name}", data)
    return Receipt(task.name, (ShardInfo(name, 0, 0, len(data), hashlib.sha256(data).hexdigest()),))


@contextmanager
def job_service(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], tuple[str, str]]]:
    """A job service of Beam's as a process, as Flink and Spark speak it, and the flags of its jobs.

    Their workers are in this process.
    """
    port_file, module = folder / "port", "apache_beam.runners.portability.local_job_service_main"
    service = subprocess.Popen([sys.executable, "-m", module, "--port", "0", "--port_file", str(port_file)])
    try:
        wait_for(lambda: port_file.exists() and port_file.read_text(), 120)
        yield service, (f"--job_endpoint=localhost:{port_file.read_text()}", "--environment_type=LOOPBACK")
    finally:
        service.kill()
        service.wait()


def write_texts(folder: Path, names: Iterable[str], count: int) -> None:
    """Write a tokenizer, and ``count`` records of drawn words into each file ``raw/NAME``."""
    draw = random.Random(0)
    small_tokenizer().save(str(folder / "tokenizer"))
    for name in names:
        lines = [json.dumps({"text": " ".join(draw.choices(WORDS, k=draw.randint(1, 60)))}) for _ in range(count)]
        (folder / "raw" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "raw" / name).write_text("\n".join(lines))


def contents(folder: str) -> dict[str, bytes]:
    """The bytes of all files below a folder, by their paths in it."""
    return {path.removeprefix(folder): files.read_bytes(path) for path in files.walk(folder)}


def launch(errors: Path, *arguments: Any, engine: Engine | None = None) -> BaseProcess:
    """Start a process that takes part in ``shared_job(*arguments)``, with its errors in a file."""
    process = FORKS.Process(target=_run, args=(str(errors), arguments, engine or cooperative()))
    process.start()
    return process


def _run(errors: str, arguments: tuple, engine: Engine) -> None:
    from pipelines.interrupts import Terminated

    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    sys.stderr = open(2, "w", buffering=1)
    try:
        run_job(shared_job(*arguments), engine)
    except FarspanError as error:
        print(f"farspan: {error}", file=sys.stderr)
        os._exit(1)
    except Terminated:
        os._exit(143)
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(0)


def end_of(*processes: BaseProcess) -> list[int | None]:
    """Exit codes, once all have ended."""
    for process in processes:
        process.join(60)
        assert process.exitcode is not None
    return [process.exitcode for process in processes]


def wait_for(seen: Callable[[], object], seconds: float = 60) -> None:
    """Look until something is seen."""
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.02)
