from __future__ import annotations

import sys
from io import StringIO

import pytest
from rich.console import Console

from corpora.errors import FarspanError
from trainer.metrics import Display, MetricsFile, TensorBoard, Together

RECORD = {"step": 1, "loss": 2.5, "learning_rate": 1e-4, "source_tokens_per_second": 1234.5, "seconds": 0.5}


def show(terminal: bool, log_every: int, records) -> str:
    screen = StringIO()
    with Display(3, log_every, Console(file=screen, width=200, force_terminal=terminal, highlight=False)) as display:
        for record in records:
            display.update(record)
    return screen.getvalue()


def test_plain_lines_come_every_few_steps_and_at_the_end():
    said = show(False, 2, [{**RECORD, "step": step} for step in (1, 2, 3)])
    assert said.splitlines() == [
        f"step {step}/3  loss 2.5000  lr 1.00e-04  1,234 source tokens/s  0.50 s" for step in (2, 3)
    ]


def test_a_terminal_has_a_bar():
    said = show(True, 1, [{**RECORD, "step": 3}])
    assert "step 3/3" in said
    assert "loss 2.5000" in said


def test_a_skipped_update_is_called_so():
    assert "skipped  lr" in show(False, 1, [{**RECORD, "loss": None}])


def test_tensorboard_has_the_numbers_of_the_file(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    places = Together([MetricsFile(tmp_path / "metrics.jsonl", 0), TensorBoard(tmp_path)])
    for step, loss in ((1, 3.0), (2, None), (3, 2.0)):
        places.write({**RECORD, "step": step, "loss": loss})
    places.close()
    events = event_accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 3.0), (3, 2.0)]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_tensorboard_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(FarspanError, match=r"farspan\[tracking\]"):
        TensorBoard(tmp_path)
