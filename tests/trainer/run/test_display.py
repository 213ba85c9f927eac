"""Progress lines and bars."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from trainer.run.display import Display

RECORD = {"step": 1, "loss": 2.5, "learning_rate": 1e-4, "source_tokens_per_second": 1234.5, "seconds": 0.5}


def show(terminal: bool, log_every: int, records, steps: int = 3, done: int = 0, **console) -> str:
    screen = StringIO()
    console = Console(file=screen, force_terminal=terminal, highlight=False, **{"width": 200, **console})
    with Display(steps, log_every, console, done) as display:
        for record in records:
            display.update(record)
    return screen.getvalue()


def test_plain_lines_come_every_few_steps_and_at_the_end():
    said = show(False, 2, [{**RECORD, "step": step} for step in (1, 2, 3)])
    assert said.splitlines() == [
        "step 2/3  loss 2.5000  lr 1.00e-04  1,234 source tokens/s  0.50 s  0:00:01 left",
        "step 3/3  loss 2.5000  lr 1.00e-04  1,234 source tokens/s  0.50 s",
    ]


def test_a_line_says_what_matters_now():
    record = {**RECORD, "mfu": 0.523, "data_wait_share": 0.27, "source_padding_share": 0.121}
    assert "  52.3% of peak  12% padding  27% waiting for data  0.50 s" in show(False, 1, [record])
    assert "padding" not in show(False, 1, [{**record, "source_padding_share": 0.04}])
    assert "waiting" not in show(False, 1, [{**record, "data_wait_share": 0.01}])
    assert "peak" not in show(False, 1, [{**record, "mfu": None}])


def test_the_time_left_is_that_of_the_latest_updates():
    records = [{**RECORD, "step": step, "seconds": 10.0 if step < 100 else 2.0} for step in range(1, 200)]
    assert show(False, 199, records, steps=1099).endswith("2.00 s  0:30:00 left\n")


def test_a_terminal_has_a_bar():
    said = show(True, 1, [{**RECORD, "step": 3}])
    assert "step 3/3" in said
    assert "loss 2.5000" in said


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_shows_what_matters_first_and_nothing_cut(width):
    record = {**RECORD, "step": 2, "mfu": 0.5, "data_wait_share": 0.3, "source_padding_share": 0.2}
    said = show(True, 1, [record], steps=10_000, width=width)
    assert "step 2/10000" in said
    assert "loss 2.5000  1:23:19 left" in said
    assert "…" not in said
    assert ("% of peak" in said) == (width == 120)


def test_a_skipped_update_is_called_so():
    assert "skipped  lr" in show(False, 1, [{**RECORD, "loss": None}])


def test_a_quiet_console_shows_nothing():
    assert show(False, 1, [RECORD], quiet=True) == ""
