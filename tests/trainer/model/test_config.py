"""Configurations that are refused, and the operations of a forward pass counted by hand."""

from __future__ import annotations

import math

import pytest

from corpora.errors import FarspanError
from trainer.metrics import forward_flops
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.block import Block
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.window import Window
from trainer.model.positions import Buckets, Learned, Sinusoidal

ENCODER = EncoderConfig(layers=2, positions=Learned(8))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"heads": HeadsConfig(count=3)}, "model.heads.count is 3 and does not divide model.width 8"),
        ({"width": 0}, "model.width is 0"),
        ({"dropout": 1.0}, "model.dropout is 1.0"),
        ({"attention_dropout": -0.1}, "model.attention_dropout"),
        ({"init_std": 0.0}, "model.init_std"),
        ({"init_std": math.inf}, "model.init_std is inf"),
        (
            {"width": 9, "heads": HeadsConfig(count=3), "encoder": EncoderConfig(layers=1, positions=Sinusoidal())},
            "model.encoder.positions are sinusoidal, half sines, half cosines, but model.width is 9",
        ),
        (
            {"decoder": DecoderConfig(layers=1, positions=Learned(8), global_cross_attention=True)},
            "global_cross_attention is set, but the encoder's pattern 'block' has no learned tokens",
        ),
    ],
)
def test_bad_models_are_refused(options, said):
    with pytest.raises(FarspanError, match=said):
        ModelConfig(
            **{
                "width": 8,
                "heads": HeadsConfig(count=2),
                "feed_forward": FeedForwardConfig(width=16),
                "encoder": ENCODER,
                **options,
            }
        )


def test_bad_stacks_are_refused():
    with pytest.raises(FarspanError, match=r"learned positions: count is 0"):
        EncoderConfig(layers=2, positions=Learned(0))
    with pytest.raises(FarspanError, match=r"pooling.layers is 4, but model.encoder.layers is 2"):
        EncoderConfig(layers=2, positions=Learned(8), pooling=Pooling())
    with pytest.raises(FarspanError, match=r"pooling cannot be used with the pattern 'staggered'"):
        EncoderConfig(layers=4, positions=Learned(8), attention=Staggered(), pooling=Pooling())
    with pytest.raises(FarspanError, match=r"positions are relative, which the pattern 'window' does not support"):
        EncoderConfig(layers=2, positions=Buckets(), attention=Window())
    with pytest.raises(FarspanError, match=r"attention.shifted is true.*leave it out"):
        EncoderConfig(layers=2, positions=Learned(8), attention=Staggered(shifted=True))
    with pytest.raises(FarspanError, match=r"model.decoder.layers is 0"):
        DecoderConfig(layers=0, positions=Learned(8))


def test_forward_of_the_large_model_costs_what_was_counted_by_hand():
    large = ModelConfig(
        width=1024,
        heads=HeadsConfig(count=16),
        feed_forward=FeedForwardConfig(width=4096),
        encoder=EncoderConfig(layers=12, positions=Learned(16_384), attention=Block(1024), pooling=Pooling()),
        decoder=DecoderConfig(layers=12, positions=Learned(1024)),
    )
    tera = forward_flops(large, 50_265, 16_384, 1024) / 1e12
    assert tera == pytest.approx(4.95 + 0.82 + 0.66 + 0.36 + 0.82 + 0.82 + 0.11 + 0.03, abs=0.03)
