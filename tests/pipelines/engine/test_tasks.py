"""A task and its receipt, where attempts overlap, fail and come too late."""

from __future__ import annotations

import os

import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.manifest import Receipt
from corpora.storage.temporary import is_temporary
from pipelines.engine.job import Task
from pipelines.engine.progress import Reporter
from pipelines.engine.tasks import RunTask, explain, perform

TASK = Task("embed-00000", {}, 1)


@pytest.fixture
def output(tmp_path) -> str:
    """The folder of a job that was begun."""
    write_bytes(str(tmp_path / "_work" / "job.json"), b"{}")
    return str(tmp_path)


def attempt(output: str, data: bytes, meanwhile=lambda: None):
    """The work of a float stage: writes a shard, which is not quite the same on each machine."""

    def work(task, report):
        with files.create(f"{output}/shards/part") as file:
            file.write(data)
            meanwhile()
        return Receipt(task.name, totals={"bytes": len(data), f"by {data.decode()}": 1})

    return work


def run(output: str, data: bytes, meanwhile=lambda: None) -> None:
    perform(TASK, attempt(output, data, meanwhile), output, lambda done: None)


def test_what_a_receipt_describes_is_never_overwritten(output):
    run(output, b"slow", meanwhile=lambda: run(output, b"fast"))
    assert read_bytes(f"{output}/shards/part") == b"fast"
    receipt = Receipt.from_json(read_bytes(f"{output}/_work/embed-00000.json"))
    assert receipt.totals == {"bytes": 4, "by fast": 1}
    assert not any(map(is_temporary, files.walk(output)))
    run(output, b"late")  # does nothing
    assert read_bytes(f"{output}/shards/part") == b"fast"


def test_an_attempt_without_receipt_is_replaced(output):
    write_bytes(f"{output}/shards/part", b"killed before its receipt")
    run(output, b"again")
    assert read_bytes(f"{output}/shards/part") == b"again"


def test_an_attempt_may_lose_its_files_to_the_end_of_the_job(output):
    def end():
        run(output, b"fast")
        raise FileNotFoundError("a file that was swept")

    run(output, b"slow", meanwhile=end)
    assert read_bytes(f"{output}/shards/part") == b"fast"


def test_nothing_is_written_into_an_artefact_that_was_finished_meanwhile(output):
    def finish():
        write_bytes(f"{output}/shards/part", b"of the manifest")
        write_bytes(f"{output}/manifest.json", b"{}")
        files.delete(files.walk(f"{output}/_work"))

    with pytest.raises(FarspanError, match="another job finished this artefact meanwhile"):
        run(output, b"late", meanwhile=finish)
    assert read_bytes(f"{output}/shards/part") == b"of the manifest"
    assert files.walk(output) == [f"{output}/manifest.json", f"{output}/shards/part"]


def test_a_failure_that_was_repeated_well_is_not_shown(output):
    def fail(task, report):
        raise FarspanError("row 3: no number; mend it")

    with pytest.raises(FarspanError, match="task embed-00000 failed: row 3"):
        RunTask("embed", fail, output, Reporter(0))(TASK)
    work = os.path.join(output, "_work")
    assert "row 3: no number; mend it" in str(explain(work, RuntimeError("the runner's own")))
    RunTask("embed", attempt(output, b"well"), output, Reporter(0))(TASK)
    assert str(explain(work, RuntimeError("a worker died"))) == (
        "the runner stopped: a worker died; finished tasks are kept"
    )
