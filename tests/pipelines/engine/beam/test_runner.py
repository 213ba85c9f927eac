"""Pipelines that end or fail in this process."""

from __future__ import annotations

import os
import sys

import apache_beam as beam
import pytest

from pipelines.engine.beam.runner import run_pipeline, search_path, worker_command
from pipelines.engine.options import Engine


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


def test_workers_search_the_current_folder_last(tmp_path, monkeypatch):
    """A notebook or ``python -c`` searches it first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/one", "/two"])
    assert search_path() == ["/one", "/two", str(tmp_path)]
    monkeypatch.setattr(sys, "path", ["/one", "/two"])
    assert search_path() == ["/one", "/two"]
