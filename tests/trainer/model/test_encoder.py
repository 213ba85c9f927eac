"""Encoders: learned tokens, patterns and pooling of single layers, tables of relative positions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.context import make_context
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.block import Block
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window
from trainer.model.positions import Buckets, Learned

VOCAB, WIDTH = 50, 16


CONFIG = ModelConfig(
    width=WIDTH,
    heads=HeadsConfig(count=4),
    feed_forward=FeedForwardConfig(width=32),
    dropout=0.0,
    init_std=0.3,  # large enough that every part of the model shows in the output
    encoder=EncoderConfig(layers=2, positions=Learned(40), attention=Block(8)),
    decoder=DecoderConfig(layers=2, positions=Learned(12)),
)


def pooled(pooling: Pooling, config: ModelConfig = CONFIG) -> ModelConfig:
    return replace(config, encoder=replace(config.encoder, pooling=pooling))


def test_pooling_starts_as_no_pooling_unless_asked():
    ids = torch.randint(0, VOCAB, (2, 24))
    plain = build_model(CONFIG, VOCAB, seed=3).eval()
    zero = build_model(pooled(Pooling(layers=1, kernel=6, stride=4, padding=3)), VOCAB, seed=3).eval()
    drawn = build_model(pooled(Pooling(layers=1, kernel=6, stride=4, padding=3, reference_init=True)), VOCAB, 3).eval()
    assert torch.equal(plain.encode(ids).states, zero.encode(ids).states)
    assert not torch.allclose(plain.encode(ids).states, drawn.encode(ids).states, atol=1e-2)
    zero(ids, ids[:, :5], ids[:, :5]).minimised.backward()
    assert zero.encoder.layers[0].pooling is None
    assert zero.encoder.layers[1].pooling.out.weight.grad.abs().max() > 0  # it can leave zero


def test_states_of_learned_tokens_are_given_apart():
    config = replace(CONFIG, encoder=replace(CONFIG.encoder, attention=Staggered(8, 3)))
    model = build_model(config, VOCAB, seed=0).eval()
    ids = torch.randint(0, VOCAB, (2, 24))
    segments = (torch.arange(24) >= 10).long().expand(2, -1)
    states, extra = model.encoder(model.tokens(ids), make_context())
    assert (states.shape, extra.shape) == ((2, 24, WIDTH), (2, 3, WIDTH))
    states, extra = model.encoder(model.tokens(ids), make_context(segments=segments))
    assert (states.shape, extra.shape) == ((2, 24, WIDTH), (2, 6, WIDTH))  # a copy for each document


def test_layers_have_their_own_patterns_and_only_the_last_ones_pooling():
    config = replace(CONFIG, encoder=EncoderConfig(layers=3, positions=Learned(40), attention=Window((4, 8, 12))))
    sizes = [layer.attention.pattern.size for layer in build_model(config, VOCAB, 0).encoder.layers]
    assert sizes == [4, 8, 12]
    layers = build_model(pooled(Pooling(layers=1, kernel=6, stride=4, padding=3)), VOCAB, 0).encoder.layers
    assert [layer.pooling is None for layer in layers] == [True, False]


@pytest.mark.parametrize("attention", [Block(8), TGlobal(3, 4)])
def test_relative_positions_have_a_table_for_each_of_the_patterns_offsets(attention):
    encoder = EncoderConfig(layers=2, positions=Buckets(8, 12), attention=attention)
    model = build_model(replace(CONFIG, encoder=encoder), VOCAB, seed=0).eval()
    assert len(model.encoder.biases) == len(attention.offsets(24))
    ids = torch.randint(0, VOCAB, (1, 24))
    before = model.encode(ids).states
    for table in model.encoder.biases:
        known = table.weight.data.clone()
        table.weight.data += torch.randn_like(known)
        assert not torch.allclose(model.encode(ids).states, before, atol=1e-3)
        table.weight.data = known
    assert torch.equal(model.encode(ids).states, before)
