"""The limit on skipped updates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from tests.trainer.toy import toy_recipe
from trainer.run.loop import SkippedUpdates

SAMPLES = [{"number": number, "sequence_id": f"{number:032x}"} for number in range(6)]


def skipped(step: int, samples: int = 1) -> dict:
    return {"step": step, "loss": None, "skipped": SAMPLES[:samples]}


def test_only_updates_in_a_row_count():
    updates = SkippedUpdates(toy_recipe("unused", max_skipped=3).run)
    for step in (1, 2, 4, 5):
        updates.count(skipped(step))
        if step == 2:
            updates.count({"step": 3, "loss": 1.0})
    with pytest.raises(
        FarspanError, match="3 updates in a row, up to step 6, had a loss or gradient that is not finite"
    ):
        updates.count(skipped(6))


@pytest.mark.parametrize(("samples", "end"), [(4, r"3 0{31}3\)"), (5, r"3 0{31}3; \.\.\.\)")])
def test_abort_ends_the_run_at_once_and_names_a_few_samples(samples, end):
    run = replace(toy_recipe("unused", max_skipped=3).run, non_finite="abort")
    with pytest.raises(
        FarspanError, match=rf"step 7: loss or gradient is not finite \(samples 0 0{{32}}; .*{end}; look"
    ):
        SkippedUpdates(run).count(skipped(7, samples))
