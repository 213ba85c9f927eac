"""A job whose second task kills its own process: ``python -m tests.pipelines.engine.crashing_job FOLDER``."""

from __future__ import annotations

import os
import signal
import sys

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest, Receipt
from pipelines.cli import leave
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job

TOKENIZER = {"fingerprint": "", "vocab_size": 1, "owned_tokens": {}}


def work(task, report):
    if task.name == "second":
        os.kill(os.getpid(), signal.SIGKILL)
    return Receipt(task.name)


def main(output):
    head = Manifest("farspan.neighbours", {"split": "train"}, 0, 64, TOKENIZER)
    stage = Stage("crash", [Task(name, {}, 1) for name in ("first", "second", "third", "fourth")], work, "tasks")
    try:
        run_job(Job(output, head, [stage], lambda folder: None, 0), Engine(workers=2))
    except FarspanError as error:
        print(error, file=sys.stderr)
        leave(1)


if __name__ == "__main__":
    from tests.pipelines.engine.crashing_job import main  # workers find `work` under this name, not under __main__

    main(*sys.argv[1:])
