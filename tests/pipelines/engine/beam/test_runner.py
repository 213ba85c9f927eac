"""The choice of workers, and pipelines that end or fail in this process."""

from __future__ import annotations

import os

import apache_beam as beam
import pytest

from corpora.errors import FarspanError
from pipelines.engine.beam.runner import run_pipeline, worker_command
from pipelines.engine.options import Engine

SMALL, LARGE = 1 << 20, 1 << 30


def test_a_small_job_stays_in_this_process():
    assert Engine().worker_count(100, SMALL) == 1


def test_a_large_job_has_a_worker_for_each_core_but_no_more_than_tasks():
    cores = len(os.sched_getaffinity(0))
    assert Engine().worker_count(1000, LARGE) == cores
    assert Engine().worker_count(1, LARGE) == 1
    assert Engine(workers=7).worker_count(1000, SMALL) == 7
    assert Engine(workers=7).worker_count(3, SMALL) == 3
    assert Engine(workers=7).worker_count(0, SMALL) == 1


def test_workers_cannot_be_negative():
    with pytest.raises(FarspanError, match="--workers -1: give 0"):
        Engine(workers=-1)


def test_a_pipeline_runs_to_its_end_and_its_error_comes_back(tmp_path):
    folder = str(tmp_path)

    def build(pipeline):
        _ = pipeline | beam.Create(["a", "b"]) | beam.Map(lambda name: os.mkdir(os.path.join(folder, name)))

    run_pipeline(build, Engine(), 1)
    assert sorted(os.listdir(folder)) == ["a", "b"]

    def fail(pipeline):
        _ = pipeline | beam.Create([0]) | beam.Map(lambda x: 1 // x)

    with pytest.raises(ZeroDivisionError):
        run_pipeline(fail, Engine(), 1)


def test_workers_search_modules_where_this_process_does():
    command = worker_command()
    assert " -P -m pipelines.engine.beam.worker " in command
    assert command.endswith(str(os.getpid()))
