from __future__ import annotations

from io import StringIO

from rich.console import Console

from trainer.metrics import Display

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
