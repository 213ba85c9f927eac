"""Names of tasks, by which an unfinished job is resumed, and places inside its output."""

from __future__ import annotations

from corpora.storage.manifest import Receipt
from pipelines.engine.job import sharded_stage
from pipelines.engine.paths import (
    claims_folder,
    processes_folder,
    remove_empty_folders,
    shard_paths,
    shows_presence,
    work_paths,
)


def test_signs_of_presence_are_told_from_the_job(tmp_path):
    output = str(tmp_path)
    assert shows_presence(output, f"{processes_folder(output)}/driver~a")
    assert shows_presence(output, f"{claims_folder(output)}/task-1")
    assert not shows_presence(output, f"{output}/_work/job.json")
    assert not shows_presence(output, f"{processes_folder(output)}.txt")


def test_empty_folders_go_unless_a_process_is_there(tmp_path):
    output = str(tmp_path)
    for folder in (processes_folder(output), claims_folder(output)):
        (tmp_path / folder).mkdir(parents=True)
    sign = tmp_path / processes_folder(output) / "driver~a"
    sign.touch()
    remove_empty_folders(output)
    assert (tmp_path / claims_folder(output)).is_dir()
    sign.unlink()
    kept = tmp_path / "_work" / "job.json"
    kept.touch()
    remove_empty_folders(output)
    assert list((tmp_path / "_work").iterdir()) == [kept]
    kept.unlink()
    remove_empty_folders(output)
    assert list(tmp_path.iterdir()) == []
    remove_empty_folders("memory://bucket/none")


def test_paths_of_intermediate_files_and_of_shards():
    assert work_paths("out", "spill", 2, ".arrow") == ("out/_work/spill-00000.arrow", "out/_work/spill-00001.arrow")
    assert work_paths("s3://bucket/out", "queries", 1) == ("s3://bucket/out/_work/queries-00000",)
    assert shard_paths("out", 2) == ("out/shards/part-00000-of-00002.arrow", "out/shards/part-00001-of-00002.arrow")
    assert shard_paths("out", 0) == ()


def work(task, report):
    return Receipt(task.name)


def test_a_task_has_the_stages_name_and_its_number():
    stage = sharded_stage("pack", [({"bucket": 0}, 5), ({"bucket": 1}, 7)], work, "tokens")
    assert (stage.name, stage.unit, stage.work) == ("pack", "tokens", work)
    assert [(task.name, task.payload, task.units) for task in stage.tasks] == [
        ("pack-00000", {"bucket": 0}, 5),
        ("pack-00001", {"bucket": 1}, 7),
    ]


def test_a_stage_may_have_no_task():
    assert list(sharded_stage("pack", iter(()), work, "tokens").tasks) == []
