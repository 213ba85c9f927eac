"""The options of the engine, and messages of a job when one of its tasks fails, or the disk under it."""

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.storage.files import write_bytes
from corpora.storage.manifest import FileInfo, Manifest, Receipt, ShardInfo
from corpora.storage.stores import connect
from corpora.storage.strict_json import seal
from pipelines.engine.folder import finalize
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.options import Engine, use_store_flags
from pipelines.engine.run import run_job
from tests.artefacts import edit_sealed

SMALL, LARGE, CORES = 1 << 20, 1 << 30, len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("workers", "tasks", "size", "most", "count"),
    [
        (0, 100, SMALL, None, 1),
        (0, 1000, LARGE, None, CORES),
        (0, 1, LARGE, None, 1),
        (0, 100, LARGE, 8, 8),
        (0, 5, LARGE, 8, 5),
        (3, 100, LARGE, 8, 3),
        (7, 1000, SMALL, None, 7),
        (7, 3, SMALL, None, 3),
        (7, 0, SMALL, None, 1),
    ],
)
def test_workers_follow_from_the_size_of_the_job_unless_given(workers, tasks, size, most, count):
    assert Engine(workers=workers).worker_count(tasks, size, most) == count


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"workers": -1}, "--workers -1: give 0"),
        ({"worker_timeout": -1}, "--worker-timeout -1: give a positive number of seconds"),
        ({"lease": 0}, "--lease 0: give a number of seconds from 1"),
        ({"engine": "cooperative", "runner": "FlinkRunner"}, "--engine cooperative: has no --runner FlinkRunner"),
        ({"engine": "cooperative", "workers": 3}, "start the same command 3 times"),
        ({"engine": "beam", "workers": 2}, "--workers 2: Beam's embedded runner works in this process; leave out"),
        ({"engine": "beam", "estimate": True}, "--estimate: measures processes of this machine; leave out --engine"),
    ],
)
def test_options_that_cannot_be_are_refused(options, told):
    with pytest.raises(FarspanError, match=told):
        Engine(**options)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {}),
        (["--s3_endpoint_url=http://host:1/"], {"endpoint": "http://host:1"}),
        (["--s3_endpoint_url=https://host/a"], {"endpoint": "https://host/a"}),
        (["--s3_endpoint_url=host", "--s3_disable_ssl"], {"endpoint": "http://host"}),
        (["--s3_region_name=r"], {"region": "r"}),
        (["--s3_access_key_id=a", "--s3_secret_access_key=b", "--s3_session_token=c"],
         {"access_key_id": "a", "secret_access_key": "b", "session_token": "c"}),
    ],
)  # fmt: skip
def test_flags_set_up_the_client(monkeypatch, flags, expected):
    monkeypatch.setattr(connect, "s3_settings", ())
    use_store_flags(flags)
    arguments, client = connect.s3_options()
    assert arguments["config"] == expected
    assert client == {"allow_http": expected.get("endpoint", "").startswith("http:")}


def test_a_certificate_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(connect, "s3_settings", ())
    use_store_flags([f"--s3_verify={tmp_path}/ca.pem"])
    with pytest.raises(FarspanError, match=r"--s3_verify .*/ca.pem: No such file or directory"):
        connect.s3_options()
    (tmp_path / "ca.pem").write_bytes(b"certificate")
    assert connect.s3_options()[1]["root_certificate"] == b"certificate"


TOKENIZER = {"fingerprint": "", "vocab_size": 1, "owned_tokens": {}}
TOTALS = {"documents": 0, "tokens": 0}
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
ERRORS = {
    "input": FarspanError("row 3: not a number; mend it"),
    "strange": OSError("no idea"),
    "full": FULL,
    "quota": OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/shards/part-00000-of-00001.arrow"),
    "read-only": OSError(errno.EROFS, os.strerror(errno.EROFS), "/tmp/spill"),
}


def work(task, report):
    if task.name in ERRORS:
        raise ERRORS[task.name]
    if task.name == "delete":
        shutil.rmtree(task.payload["output"])
    if task.name == "lose":
        shutil.rmtree(f"{task.payload['output']}/_work")
    if task.name == "write":
        for number in range(64):
            write_bytes(f"{task.payload['output']}/shards/{number}", bytes(64 << 10))
    return Receipt(task.name, totals=TOTALS)


def job(output, *tasks) -> Job:
    stages = [Stage(name, [Task(name, {"output": str(output)}, 1)], work, "tasks") for name in tasks]
    head = Manifest("farspan.neighbours", {"split": "train"}, 0, 64, TOKENIZER)
    return Job(str(output), head, stages, lambda folder: None, 0)


def failure(output, *tasks) -> list[str]:
    with pytest.raises(FarspanError) as caught:
        run_job(job(output, *tasks), Engine(workers=1))
    return str(caught.value).splitlines()


def test_a_repetition_is_advised_only_where_it_may_help(tmp_path):
    assert failure(tmp_path / "mend", "fine", "input") == [
        "task input failed: row 3: not a number; mend it",
        "finished tasks are kept: correct this, then run the same command again to resume",
    ]
    first, *_, cause, last = failure(tmp_path / "repeat", "fine", "strange")
    assert first.startswith("task strange failed: Traceback")
    assert (cause, last) == ("OSError: no idea", "finished tasks are kept: run the same command again to resume")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("full", r"{output}: No space left on device; make room there, or choose a place with more"),
        ("quota", r"/shards/part-00000-of-00001.arrow: Disk quota exceeded; make room there, .* larger quota"),
        ("read-only", r"/tmp/spill: Read-only file system; mount it for writing, or choose another place"),
    ],
)
def test_an_error_of_the_disk_is_one_line_with_the_cure(tmp_path, task, message):
    (line,) = failure(tmp_path, "fine", task)
    assert line.startswith(f"task {task} failed: ")
    assert re.search(f"{message.format(output=tmp_path)}; finished tasks are", line)
    assert (tmp_path / "_work" / "fine.json").exists()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=False).returncode:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_keeps_what_is_done(small_disk):
    output = small_disk / "output"
    (line,) = failure(output, "fine", "write")
    assert line.startswith(f"task write failed: {output}/shards/")
    assert "No space left on device; make room there" in line
    assert sorted(path.name for path in (output / "_work").iterdir()) == ["fine.json", "job.json"]
    shutil.rmtree(output / "shards")
    assert failure(output, "fine", "write")[-1].startswith("task write failed: ")  # not "fine" again


def test_a_full_disk_before_the_first_task(small_disk, tmp_path, monkeypatch):
    (small_disk / "ballast").write_bytes(bytes(1 << 20))
    (line,) = failure(small_disk / "output", "fine")
    assert line.startswith(f"{small_disk}/output")
    assert "No space left on device; make room there" in line


def test_a_folder_deleted_under_the_job_stays_deleted(tmp_path):
    output = tmp_path / "output"
    lines = failure(output, "delete", "fine")
    assert lines[0].endswith(f"{output}: was deleted while the job ran; run the same command again to start over")
    assert not (output / "shards").exists()
    assert not (output / "_work" / "fine.json").exists()


def test_a_deleted_work_folder_is_said_with_a_cure_that_works(tmp_path):
    output = tmp_path / "output"
    line = failure(output, "write", "lose")[0]
    cure = f"{output}/_work: was deleted while the job ran; delete {output} too, and run the same command again"
    assert cure in line
    with pytest.raises(FarspanError, match="not empty and no farspan artefact"):
        run_job(job(output, "write"), Engine(workers=1))
    shutil.rmtree(output)
    run_job(job(output, "fine"), Engine(workers=1))


SHARD = "part-00000-of-00001.arrow"


def finished(output) -> dict[str, Path]:
    """A job whose tasks are done and which was not finalized: its files by name."""
    work = output / "_work"
    shard = ShardInfo(SHARD, 0, 0, 3, "0" * 64)
    (output / "shards").mkdir(parents=True)
    (output / "shards" / shard.name).write_bytes(b"abc")
    work.mkdir()
    rest = {"repeated_links": {}, "versions": {}, "origins": {}}
    (work / "job.json").write_bytes(seal({"head": job(output).head.to_values(), "tasks": ["one"], **rest}))
    (work / "one.json").write_bytes(Receipt("one", (shard,), TOTALS).to_json())
    return {path.name: path for path in output.rglob("*") if path.is_file()}


def test_finalizing_lists_all_files_but_hidden_ones(tmp_path):
    finished(tmp_path)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_bytes(b"{}")
    (tmp_path / ".DS_Store").write_bytes(b"x")
    manifest = finalize(str(tmp_path))
    sha256 = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert manifest.files == {"tokenizer/tokenizer.json": FileInfo(2, sha256)}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("one.json", b"{", r"_work/one\.json: not a receipt of farspan .*; delete it and run the job's command again"),
        ("one.json", Receipt("two").to_json(), "not a receipt of farspan .it is that of task two"),
        (
            "one.json",
            Receipt("one", totals={}).to_json(),
            "do not make one artefact .totals lack documents, tokens.*de",
        ),
        *(
            (
                "job.json",
                content,
                r"_work/job\.json: does not say which job was begun .*; delete the folder and run the",
            )
            for content in (
                *(b"[]", b"nonsense", seal({"head": None, "tasks": []})),
                b'{"head": {"format_version": 1}, "tasks": []}',
            )
        ),
        *((SHARD, content, f"{SHARD}: missing or cut short, though its task is done") for content in (b"ab", None)),
    ],
)
def test_what_is_left_of_a_job_is_checked_when_it_is_finalized(tmp_path, name, content, message):
    files = finished(tmp_path)
    if content is None:
        files[name].unlink()
    else:
        files[name].write_bytes(content)
    with pytest.raises(FarspanError, match=message):
        finalize(str(tmp_path))
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize("task", ["../../x", "a/b", "", 1, None])
def test_no_name_of_a_task_leads_out_of_the_folder(tmp_path, task):
    with edit_sealed(finished(tmp_path)["job.json"]) as values:
        values["tasks"] = [task]
    with pytest.raises(FarspanError, match=r"does not say which job was begun .tasks\[0\] is"):
        finalize(str(tmp_path))
