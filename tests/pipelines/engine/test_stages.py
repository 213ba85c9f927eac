"""Names of tasks and paths, by which an unfinished job is resumed: they must not change."""

from __future__ import annotations

from corpora.storage.manifest import Receipt
from pipelines.engine.stages import shard_paths, sharded_stage, work_paths


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


def test_paths_of_intermediate_files_and_of_shards():
    assert work_paths("out", "spill", 2, ".arrow") == ("out/_work/spill-00000.arrow", "out/_work/spill-00001.arrow")
    assert work_paths("s3://bucket/out", "queries", 1) == ("s3://bucket/out/_work/queries-00000",)
    assert shard_paths("out", 2) == ("out/shards/part-00000-of-00002.arrow", "out/shards/part-00001-of-00002.arrow")
    assert shard_paths("out", 0) == ()
