"""A task and its receipt, where attempts overlap, fail and come too late."""

import os
import pickle
import time
import uuid
from unittest.mock import Mock

import pytest

from corpora.errors import FarspanError, StoreError
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.manifest import Receipt
from corpora.storage.stores.local_disk import is_temporary
from pipelines.engine import tasks
from pipelines.engine.job import Task
from pipelines.engine.tasks import RunTask, TaskFailed, is_for_good, message_bytes, perform

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


def run(output: str, data: bytes, meanwhile=lambda: None, **options) -> None:
    perform(TASK, attempt(output, data, meanwhile), output, lambda done: None, **options)


def receipt(output: str) -> Receipt:
    return Receipt.from_json(read_bytes(f"{output}/_work/embed-00000.json"))


def test_what_a_receipt_describes_is_never_overwritten(output):
    run(output, b"slow", meanwhile=lambda: run(output, b"fast"))
    assert read_bytes(f"{output}/shards/part") == b"fast"
    assert receipt(output).totals == {"bytes": 4, "by fast": 1}
    assert not any(map(is_temporary, files.walk(output)))
    run(output, b"late")  # does nothing
    assert read_bytes(f"{output}/shards/part") == b"fast"


@pytest.mark.parametrize("place", ["disk", "memory", "s3"])
def test_of_two_attempts_that_end_in_the_same_instant_one_writes_all(output, place, request, monkeypatch):
    """The other one is done between the last look for its receipt and the moment when the file gets its name."""
    if place != "disk":
        output = f"{request.getfixturevalue('bucket')}/out" if place == "s3" else f"memory://{uuid.uuid4().hex}/out"
        write_bytes(f"{output}/_work/job.json", b"{}")
    looks = []

    def looked(folder: str) -> None:
        looks.append(folder)
        if len(looks) == 2:  # at the beginning, and before the shard
            run(output, b"fast")

    monkeypatch.setattr(tasks, "require_begun", looked)
    run(output, b"slow")
    assert read_bytes(f"{output}/shards/part") == b"fast"
    assert receipt(output).totals == {"bytes": 4, "by fast": 1}
    assert not any(map(is_temporary, files.walk(output)))


def test_an_attempt_waits_for_the_receipt_of_the_one_whose_file_is_there(output, monkeypatch):
    write_bytes(f"{output}/shards/part", b"fast")
    of_fast = Receipt(TASK.name, totals={"by fast": 1}).to_json()
    monkeypatch.setattr(time, "sleep", lambda seconds: write_bytes(f"{output}/_work/embed-00000.json", of_fast))
    run(output, b"slow")
    assert read_bytes(f"{output}/shards/part") == b"fast"
    assert receipt(output).to_json() == of_fast


def test_a_file_whose_receipt_does_not_come_is_replaced(output):
    write_bytes(f"{output}/shards/part", b"killed before its receipt")
    run(output, b"again", patience=0)
    assert read_bytes(f"{output}/shards/part") == b"again"
    assert receipt(output).totals == {"bytes": 5, "by again": 1}


def test_the_receipt_of_an_attempt_that_was_taken_for_dead_is_replaced_as_its_file_was(output, monkeypatch):
    write_bytes(f"{output}/shards/part", b"paused")
    receipts = [Receipt(TASK.name, totals={"by paused": 1}).to_json()]

    def wake(folder: str) -> None:
        if receipts and read_bytes(f"{output}/shards/part") == b"again":
            write_bytes(f"{output}/_work/embed-00000.json", receipts.pop())

    monkeypatch.setattr(tasks, "require_begun", wake)
    run(output, b"again", patience=0)
    assert read_bytes(f"{output}/shards/part") == b"again"
    assert receipt(output).totals == {"bytes": 5, "by again": 1}


def test_a_task_that_its_caller_looked_for_asks_the_store_twice_a_file(output, monkeypatch):
    asked = []
    exists = files.exists
    monkeypatch.setattr(files, "exists", lambda path: asked.append(os.path.basename(path)) or exists(path))
    run(output, b"data", looked=True)
    assert asked == ["embed-00000.json", "job.json"] * 2


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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FarspanError("b\udcffd.txt: empty; fill it"), "b\\udcffd.txt: empty; fill it"),
        (ValueError("b\udcffd"), "b\\udcffd"),
        (SystemExit(0), "SystemExit: 0"),
        (StoreError("s3://b/x: slow down; try again"), "task embed-00000 failed: s3://b/x: slow down; try again; fin"),
    ],
)
def test_whatever_a_task_raises_is_its_failure(output, error, told):
    """Also a name with bytes that are no text, and the exit of a plug-in."""
    with pytest.raises(TaskFailed, match="task embed-00000 failed: ") as caught:
        RunTask("embed", Mock(side_effect=error), output)(TASK)
    assert told in message_bytes(str(caught.value)).decode()
    assert caught.value.for_good == (type(error) is FarspanError)
    assert is_for_good(str(caught.value)) == caught.value.for_good
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.for_good) == (str(caught.value), caught.value.for_good)
