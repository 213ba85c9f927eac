"""First weights: T5's standard deviations, each tensor drawn by its own name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from trainer.model.attention import HeadsConfig
from trainer.model.build import build_model
from trainer.model.config import (
    DecoderConfig,
    EmbeddingConfig,
    EncoderConfig,
    FeedForwardConfig,
    ModelConfig,
    NormConfig,
    OutputConfig,
)
from trainer.model.patterns.local import Local
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.relative import Buckets

WIDTH, HEADS, HEAD_WIDTH, INNER, VOCAB = 64, 5, 24, 160, 300
CONFIG = ModelConfig(
    width=WIDTH,
    heads=HeadsConfig(count=HEADS, width=HEAD_WIDTH, bias=False, scaled=False),
    feed_forward=FeedForwardConfig(width=INNER, activation="gelu_tanh", gated=True, bias=False),
    norm=NormConfig(placement="pre", kind="rms", eps=1e-6),
    embedding=EmbeddingConfig(norm=False),
    output=OutputConfig(tied=False),
    encoder=EncoderConfig(layers=1, positions=Buckets(256, 512), attention=TGlobal(3, 4)),
    decoder=DecoderConfig(layers=1, positions=Buckets(256, 512)),
    initialisation="t5",
)


def test_standard_deviations_are_those_of_t5():
    weights = dict(build_model(CONFIG, VOCAB, seed=0).named_parameters())
    heads, d, queries = HEADS * HEAD_WIDTH, WIDTH**-0.5, (WIDTH * HEAD_WIDTH) ** -0.5
    expected = {
        "tokens.weight": 1.0,
        "output.weight": 1.0,
        "encoder.biases.0.weight": d,
        "encoder.biases.1.weight": d,
        "decoder.bias.weight": d,
        "decoder.layers.0.cross_attention.q.weight": queries,
        "decoder.layers.0.cross_attention.kv.weight": d,
        "decoder.layers.0.cross_attention.out.weight": heads**-0.5,
    }
    for layer in ("encoder.layers.0", "decoder.layers.0"):
        expected |= {
            f"{layer}.attention.out.weight": heads**-0.5,
            f"{layer}.feed_forward.up.weight": d,
            f"{layer}.feed_forward.gate.weight": d,
            f"{layer}.feed_forward.down.weight": INNER**-0.5,
        }
        q, k, v = weights.pop(f"{layer}.attention.qkv.weight").chunk(3)
        for part, std in ((q, queries), (k, d), (v, d)):
            assert part.std().item() == pytest.approx(std, rel=0.05)
    for name, std in expected.items():
        assert weights.pop(name).std().item() == pytest.approx(std, rel=0.08), name
    assert all((weight == 1).all() for weight in weights.values()), "norms, and nothing else, are left"


def test_scores_that_are_scaled_have_queries_as_large_as_keys():
    config = replace(CONFIG, heads=HeadsConfig(count=4, bias=False))
    q, k, _ = build_model(config, VOCAB, seed=0).get_parameter("encoder.layers.0.attention.qkv.weight").chunk(3)
    assert q.std().item() == pytest.approx(k.std().item(), rel=0.05)


def test_models_that_differ_in_a_part_start_equal_in_all_others():
    local = replace(CONFIG, encoder=replace(CONFIG.encoder, attention=Local(3)))
    one, other = (build_model(config, VOCAB, seed=3).state_dict() for config in (CONFIG, local))
    assert {*one} - {*other} == {"encoder.biases.1.weight", "encoder.layers.0.attention.side_norm.weight"}
    assert all(torch.equal(one[name], other[name]) for name in other)
    again = build_model(CONFIG, VOCAB, seed=4).state_dict()
    assert not torch.equal(one["tokens.weight"], again["tokens.weight"])
