import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from tests.trainer.toy import ToySource, toy_recipe
from trainer.data.batch import collate
from trainer.metrics import Counts, MetricsConfig, derive, forward_flops, perplexity
from trainer.model.patterns.window import Window


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
