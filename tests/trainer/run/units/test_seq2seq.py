"""The unit of an encoder-decoder: its sizes, costs and largest batch, with and without the second pass of R3F."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from corpora.errors import FarspanError
from tests.trainer.toy import ToySource, toy_recipe
from trainer.model.loss import LossConfig, R3FConfig
from trainer.run.units.choose import open_unit
from trainer.run.units.seq2seq import Seq2SeqUnit

PLAIN = toy_recipe("unused", dropout=0.0)
TWICE = replace(PLAIN, loss=LossConfig(r3f=R3FConfig()))


def test_r3f_is_two_passes_of_the_same_sizes():
    (stage,) = PLAIN.curriculum
    ((one,), (two,)) = (Seq2SeqUnit.sizes(recipe, stage) for recipe in (PLAIN, TWICE))
    assert (one.passes, two.passes) == (1, 2)
    assert one._replace(passes=2) == two
    assert one.targets == PLAIN.data.target_length


def test_r3f_costs_twice_the_operations_and_counts_every_token_once():
    one, two = (open_unit(recipe, ToySource()) for recipe in (PLAIN, TWICE))
    (stage,) = PLAIN.curriculum
    batch, model = one.largest_batch(stage, one.special.vocab_size), one.build_model()
    single, double = (unit.counts(model, [batch], stage) for unit in (one, two))
    assert double.flops == 2 * single.flops
    assert replace(double, flops=0) == replace(single, flops=0)


def test_the_largest_batch_is_full_of_known_ids_and_always_the_same():
    unit = open_unit(PLAIN, ToySource())
    (stage,) = PLAIN.curriculum
    batch, again = (unit.largest_batch(stage, 24) for _ in range(2))
    assert batch.source_ids.shape == (2, 24)
    assert batch.labels.shape == batch.decoder_ids.shape == (2, 12)
    assert all(ids.min() >= 0 and ids.max() < 24 for ids in (batch.source_ids, batch.decoder_ids, batch.labels))
    assert batch.target_tokens == 24
    assert torch.equal(batch.source_ids, again.source_ids)


def test_a_start_that_the_data_does_not_have_is_refused():
    data = replace(PLAIN.data, decoder_start="<doc-s>")
    with pytest.raises(FarspanError, match=r"data.decoder_start is '<doc-s>', but the special tokens are <pad>, <bos>"):
        open_unit(replace(PLAIN, data=data), ToySource())
