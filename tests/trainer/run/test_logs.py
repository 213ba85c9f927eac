"""The metrics file and TensorBoard."""

from __future__ import annotations

import sys

import pytest

from corpora.errors import FarspanError
from trainer.checkpoint.run_files import read_lines
from trainer.metrics import MetricsConfig
from trainer.run.logs import MetricsFile, open_metrics

RECORD = {"step": 1, "loss": 2.5, "learning_rate": 1e-4, "source_tokens_per_second": 1234.5, "seconds": 0.5}


def test_tensorboard_has_the_numbers_of_the_file(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = MetricsConfig(tensorboard=True)
    logs = open_metrics(config, tmp_path, 0)
    for step, loss in ((1, 3.0), (2, None), (3, 2.0), (4, 7.0)):
        logs.write({**RECORD, "step": step, "loss": loss})
    logs.close()
    open_metrics(config, tmp_path, 3).close()  # the run goes on after step 3
    events = event_accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 3.0), (3, 2.0)]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_tensorboard_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(FarspanError, match=r"farspan\[tracking\]"):
        open_metrics(MetricsConfig(tensorboard=True), tmp_path, 0)


def test_lines_that_say_no_step_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n[1]\n5\n{"a": 1}\n{"step": "x"}\n\xff\n{"step": 2}\n{"step": 3}\n{"st')
    MetricsFile(path, 2).close()
    assert list(read_lines(path)) == [{"step": 1}, {"step": 2}]


def test_a_full_disk_names_the_file(tmp_path):
    full = MetricsFile(tmp_path / "metrics.jsonl", 0)
    full._file = open("/dev/full", "wb", buffering=0)
    with pytest.raises(FarspanError, match=r"metrics.jsonl cannot be written to \(.*No space left.*make room"):
        full.write({"step": 1})
    full.close()


def test_only_one_rank_writes(tmp_path):
    logs = open_metrics(MetricsConfig(), tmp_path / "run", 0, rank=1)
    logs.write(RECORD)
    logs.close()
    assert not list(tmp_path.iterdir())
