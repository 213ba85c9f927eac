from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from tests.trainer.toy import ToySource, toy_recipe
from trainer.data.collate import collate
from trainer.metrics import Counts, Display, MetricsConfig, MetricsFile, derive, open_metrics, perplexity
from trainer.model.flops import forward_flops
from trainer.model.patterns.window import Window

RECORD = {"step": 1, "loss": 2.5, "learning_rate": 1e-4, "source_tokens_per_second": 1234.5, "seconds": 0.5}


def show(terminal: bool, log_every: int, records, steps: int = 3, done: int = 0, **console) -> str:
    screen = StringIO()
    console = Console(file=screen, force_terminal=terminal, highlight=False, **{"width": 200, **console})
    with Display(steps, log_every, console, done) as display:
        for record in records:
            display.update(record)
    return screen.getvalue()


def batches(encoder_only: bool = False):
    source, data = ToySource(encoder_only=encoder_only), toy_recipe("unused").data
    return [collate(source.examples(rows), rows, data, source.special) for rows in np.split(np.arange(9), [2, 6])]


def test_counts_are_those_of_the_tensors():
    model, made = toy_recipe("unused").model, batches()
    found = Counts.of(made, model, 30)
    assert found.source_tokens == sum(int(batch.source_padding_mask.sum()) for batch in made)
    assert found.source_positions == sum(batch.source_ids.numel() for batch in made)
    assert found.target_tokens == sum(int((batch.labels >= 0).sum()) for batch in made)
    assert found.target_positions == sum(batch.labels.numel() for batch in made)
    rows = [(batch.source_ids.shape[1], batch.labels.shape[1]) for batch in made for _ in batch.samples]
    assert found.flops == 3 * sum(forward_flops(model, 30, source, target) for source, target in rows)
    assert found == Counts.of(made[:1], model, 30) + Counts.of(made[1:], model, 30)


def test_a_masked_language_model_is_asked_less_than_it_reads():
    """Its head runs on what is asked, however the rows share it."""
    model, made = replace(toy_recipe("unused").model, decoder=None), batches(encoder_only=True)
    made[1].labels[0, 2:5] = 3
    made[1] = replace(made[1], target_tokens=made[1].target_tokens + 2)
    found = Counts.of(made, model, 30)
    asked = [(batch.source_ids.shape[1], int((row != IGNORED).sum())) for batch in made for row in batch.labels]
    assert {count for _, count in asked} == {1, 3}
    assert found.flops == 3 * sum(forward_flops(model, 30, source, count) for source, count in asked)
    assert found.target_positions == found.target_tokens == sum(count for _, count in asked)


def test_rows_with_fewer_global_positions_are_padded():
    encoder = replace(toy_recipe("unused").model.encoder, attention=Window(4), pooling=None)
    model, batch = replace(toy_recipe("unused").model, encoder=encoder), batches()[1]
    chosen = torch.zeros(batch.source_ids.shape, dtype=torch.bool)
    chosen[2, :3] = True
    rows, source, target = len(chosen), chosen.shape[1], batch.labels.shape[1]
    found = Counts.of([replace(batch, global_positions=chosen)], model, 30).flops
    assert found == 3 * rows * forward_flops(model, 30, source, target, 3)


def test_derived_numbers():
    counts = Counts(source_tokens=60, source_positions=80, target_tokens=10, target_positions=16, flops=8 * 10**12)
    assert derive(counts, loss=20.0, seconds=2.0, waited=0.5, devices=2, peak_tflops=8.0) == {
        "loss": 2.0,
        "perplexity": pytest.approx(math.e**2),
        "source_tokens": 60,
        "source_positions": 80,
        "target_tokens": 10,
        "target_positions": 16,
        "source_tokens_per_second": 30.0,
        "source_positions_per_second": 40.0,
        "target_tokens_per_second": 5.0,
        "target_positions_per_second": 8.0,
        "source_padding_share": 0.25,
        "target_padding_share": 0.375,
        "model_tflops_per_second": 2.0,
        "mfu": 0.25,
        "data_wait_share": 0.25,
        "seconds": 2.0,
    }


def test_what_is_not_known_is_none():
    found = derive(Counts(), loss=None, seconds=1.0, waited=0.0)
    assert (found["loss"], found["perplexity"], found["mfu"]) == (None, None, None)


@given(st.floats(0, 1e6))
def test_every_perplexity_is_json(loss):
    value = perplexity(loss)
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    assert value is None or math.log(value) == pytest.approx(loss, abs=1e-9)


@pytest.mark.parametrize("peak", [0.0, -1.0, math.inf, math.nan])
def test_a_peak_that_is_none_is_refused(peak):
    with pytest.raises(FarspanError, match=r"metrics.peak_tflops"):
        MetricsConfig(peak_tflops=peak)


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


def test_tensorboard_has_the_numbers_of_the_file(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = MetricsConfig(tensorboard=True)
    places = open_metrics(config, tmp_path, 0)
    for step, loss in ((1, 3.0), (2, None), (3, 2.0), (4, 7.0)):
        places.write({**RECORD, "step": step, "loss": loss})
    places.close()
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
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_a_full_disk_names_the_file(tmp_path):
    full = MetricsFile(tmp_path / "metrics.jsonl", 0)
    full._file = open("/dev/full", "wb", buffering=0)
    with pytest.raises(FarspanError, match=r"metrics.jsonl cannot be written to \(.*No space left.*make room"):
        full.write({"step": 1})
    full.close()


def test_only_one_rank_writes(tmp_path):
    places = open_metrics(MetricsConfig(), tmp_path / "run", 0, rank=1)
    places.write(RECORD)
    places.close()
    assert not list(tmp_path.iterdir())
    assert show(False, 1, [RECORD], quiet=True) == ""
