"""A worker process: what it can import, and its end with its driver."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from pipelines.engine.cooperative.worker import end_with
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.pipelines.engine.cooperative.jobs import shared_job


def test_a_worker_imports_from_a_folder_with_a_colon(tmp_path, monkeypatch):
    (tmp_path / "12:30").mkdir()
    (tmp_path / "12:30" / "in_a_folder_with_a_colon.py").write_text(
        "from tests.pipelines.engine.cooperative.jobs import _first\ndef work(*given): return _first(*given)"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "12:30"))
    module = importlib.import_module("in_a_folder_with_a_colon")
    job = shared_job(str(tmp_path / "out"), dict.fromkeys(["write-0", "write-1"], 1))
    run_job(replace(job, stages=[replace(job.stages[0], work=module.work), *job.stages[1:]]), Engine(workers=2))
    assert (tmp_path / "out" / "manifest.json").exists()


def test_a_worker_ends_once_its_driver_has(monkeypatch):
    driver = subprocess.Popen([sys.executable, "-S", "-c", ""])
    driver.wait()
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as end:
        end_with(driver.pid)
    assert end.value.code == 1
