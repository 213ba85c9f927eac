"""What a job says when one of its tasks fails."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.manifest import Manifest, Receipt
from pipelines.engine import Engine
from pipelines.job import Job, Stage, Task, run_job

ERRORS = {"input": FarspanError("row 3: not a number; mend it"), "disk": OSError("no space left")}


def work(task, report):
    if task.name in ERRORS:
        raise ERRORS[task.name]
    return Receipt(task.name)


def failure(output, task):
    stage = Stage("fail", [Task("fine", {}, 1), Task(task, {}, 1)], work, "tasks")
    with pytest.raises(FarspanError) as caught:
        run_job(
            Job(str(output), Manifest("farspan.corpus", {}, 0, 64, {}), [stage], lambda files, folder: None, 0),
            Engine(workers=1),
        )
    return str(caught.value).splitlines()


def test_a_repetition_is_advised_only_where_it_may_help(tmp_path):
    assert failure(tmp_path / "mend", "input") == [
        "task input failed: row 3: not a number; mend it",
        "finished tasks are kept; the others stop there again until that is mended",
    ]
    first, *_, cause, last = failure(tmp_path / "repeat", "disk")
    assert first.startswith("task disk failed: Traceback")
    assert (cause, last) == (
        "OSError: no space left",
        "finished tasks are kept: run the same command again to resume",
    )
