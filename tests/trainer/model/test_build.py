"""Initial weights: T5's distributions, each tensor drawn by its own name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig, OutputConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import EmbeddingConfig, FeedForwardConfig, NormConfig
from trainer.model.patterns.local import Local
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.positions import Buckets

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


def test_initial_weights_are_those_of_t5():
    """Standard deviations, and bounds where the published distribution has them."""
    weights = dict(build_model(CONFIG, VOCAB, seed=0).named_parameters())
    heads, d, queries = HEADS * HEAD_WIDTH, WIDTH**-0.5, (WIDTH * HEAD_WIDTH) ** -0.5
    relative = (2 / (HEADS + 256)) ** 0.5
    expected = {
        "tokens.weight": 1.0,
        "encoder.biases.0.weight": relative,
        "encoder.biases.1.weight": relative,
        "decoder.bias.weight": relative,
        "output.weight": d,
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
        weight = weights.pop(name)
        assert weight.std().item() == pytest.approx(std, rel=0.08), name
        farthest = weight.abs().max().item() / std
        if "bias" in name:
            assert farthest <= 3**0.5, "uniform"
        elif name == "output.weight" or "feed_forward" in name:
            assert 2.0 < farthest <= 2 / 0.8796, "truncated at two standard deviations"
        else:
            assert farthest > 2.6, "normal"
    assert all((weight == 1).all() for weight in weights.values()), "norms, and nothing else, are left"


@pytest.mark.parametrize(
    "changes",
    [
        {"output": OutputConfig(tied=False)},
        {"output": OutputConfig(tied=True, scaled=True)},
        {"output": OutputConfig(tied=True)},
        {"decoder": None},
    ],
)
def test_logits_begin_at_unit_variance_whatever_gives_them(changes):
    model = build_model(replace(CONFIG, **changes), 1000, seed=0)
    ids = torch.randint(0, 1000, (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        hidden = model.encode(ids)
        logits = model.logits(hidden if changes.get("decoder", 0) is None else model.decode(ids, hidden))
    assert logits.std().item() == pytest.approx(1.0, abs=0.1)


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
