"""Stages of numbered tasks, by whose names an unfinished job is resumed: they must not change."""

from __future__ import annotations

from corpora.storage.manifest import Receipt
from pipelines.engine.job import sharded_stage


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
