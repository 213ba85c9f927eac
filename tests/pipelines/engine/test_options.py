"""The options of the engine, and the choice of workers."""

from __future__ import annotations

import os

import pytest

from corpora.errors import FarspanError
from pipelines.documents.options import Documents
from pipelines.engine.options import Engine, Finalize
from tests.pipelines.typed import typed

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


def test_a_time_limit_cannot_be_negative():
    with pytest.raises(FarspanError, match="--worker-timeout -1: give a positive number of seconds"):
        Engine(worker_timeout=-1)


def test_the_budget_of_a_job_that_is_finalized_is_that_of_documents():
    assert typed(Finalize, "folder").error_budget == Documents.error_budget
    assert typed(Finalize, "folder --error-budget 0.5") == Finalize(output="folder", error_budget=0.5)
