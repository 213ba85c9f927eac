"""A pass through the model asks the device for nothing: on ``meta`` there are no values that one could wait for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.trainer.model.dense import cut, right_padded
from trainer.data import Batch
from trainer.model.attention import HeadsConfig
from trainer.model.backends import choose, varlen
from trainer.model.build import make_model
from trainer.model.config import DecoderConfig, EncoderConfig, FeedForwardConfig, ModelConfig
from trainer.model.host import on_host, sent
from trainer.model.patterns.block import Block
from trainer.model.patterns.full import Full
from trainer.model.patterns.overlap import Overlap
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.window import Window
from trainer.model.positions import Learned

META = torch.device("meta")


def config_of(pattern, decoder=True):
    return ModelConfig(
        width=16, heads=HeadsConfig(count=2), feed_forward=FeedForwardConfig(width=8), dropout=0.0,
        encoder=EncoderConfig(layers=2, positions=Learned(32), attention=pattern),
        decoder=DecoderConfig(layers=1, positions=Learned(8)) if decoder else None,
    )  # fmt: skip


def batch_of(decoder=True, packed=False, shown=False) -> Batch:
    real = right_padded([10, 3, 7], 10)
    source = torch.arange(30, dtype=torch.int32).view(3, 10) % 20
    target = torch.arange(12, dtype=torch.int32).view(3, 4)
    return Batch(
        samples=np.arange(3), sequence_ids=np.zeros((3, 16), np.uint8), source_ids=source, source_real=real,
        decoder_ids=target if decoder else None,
        labels=target if decoder else source.masked_fill(source % 4 > 0, -100), source_tokens=20, target_tokens=12,
        segment_ids=cut(real, 3) if packed else None,
        global_positions=torch.arange(10).expand(3, -1) < 2 if shown else None,
    )  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "pattern", [Full(), Block(4), Overlap(4), Staggered(size=4, global_tokens=2), Window(4)], ids=lambda p: p.pattern
)
def test_a_pass_waits_for_nothing(monkeypatch, pattern, packed):
    with META:
        model = make_model(config_of(pattern), 20)
    monkeypatch.setattr(choose, "fused", lambda q, dropout: True)
    monkeypatch.setattr(choose.flex, "AVAILABLE", False)
    monkeypatch.setattr(varlen, "varlen_attn", lambda q, *others, **named: torch.empty_like(q))
    batch = batch_of(packed=packed, shown=pattern.pattern == "window").to(META)
    model(**batch.inputs).minimised.backward()
    unknown = replace(batch, **{name: None if x is None else x.clone() for name, x in batch.inputs.items()})
    with pytest.raises((RuntimeError, NotImplementedError)):  # the host does not know what these are copies of
        model(**unknown.inputs)


def test_an_encoder_alone_waits_for_nothing():
    with META:
        model = make_model(config_of(Block(4), decoder=False), 20)
    model(**batch_of(decoder=False).to(META).inputs).minimised.backward()


def test_a_tensor_that_was_sent_is_known_as_long_as_it_lives():
    x = torch.arange(3)
    copy = sent(x, META)
    assert on_host(copy) is x
    assert on_host(copy + 1).device == META
    assert sent(x, x.device) is x
    assert on_host(x) is x
