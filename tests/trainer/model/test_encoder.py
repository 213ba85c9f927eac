"""Tests of the encoder: documents, and operations."""

from dataclasses import replace
from typing import Any, get_args, get_type_hints

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.trainer.model.dense import PATTERNS
from trainer.metrics import forward_flops
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.context import make_context
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.block import Block
from trainer.model.patterns.layered import Layered
from trainer.model.patterns.span import Span
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window
from trainer.model.positions import Buckets, Learned, Rotary

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
    zero: Any = build_model(pooled(Pooling(layers=1, kernel=6, stride=4, padding=3)), VOCAB, seed=3).eval()
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
    model: Any = build_model(replace(CONFIG, encoder=encoder), VOCAB, seed=0).eval()
    assert len(model.encoder.biases) == len(attention.offsets(24))
    ids = torch.randint(0, VOCAB, (1, 24))
    before = model.encode(ids).states
    for table in model.encoder.biases:
        known = table.weight.data.clone()
        table.weight.data += torch.randn_like(known)
        assert not torch.allclose(model.encode(ids).states, before, atol=1e-3)
        table.weight.data = known
    assert torch.equal(model.encode(ids).states, before)


SEGMENTS_VOCAB, LENGTH = 40, 29

REAL = torch.arange(LENGTH) < torch.tensor([[29], [21]])

# Documents that begin within blocks, at their edges and with the row's last position.
SEGMENTS = torch.tensor([[0] * 5 + [1] * 11 + [2] * 12 + [3], [0] * 13 + [1] * 8 + [-1] * 8])

GLOBALS = torch.zeros_like(REAL).index_fill_(1, torch.tensor([0, 6, 13, 20]), True)


def packed_states(pattern, ids, pooling):
    """``(2, L, d)`` of three layers with large weights, so that what is mixed shows."""
    positions = Buckets(count=8, distance=9) if pattern.offsets(1) else Learned(LENGTH)
    config = ModelConfig(
        width=16,
        heads=HeadsConfig(count=4),
        feed_forward=FeedForwardConfig(width=24),
        encoder=EncoderConfig(layers=3, positions=positions, attention=pattern, pooling=pooling),
        dropout=0.0,
        init_std=0.3,
    )
    model = build_model(config, SEGMENTS_VOCAB, seed=0).eval()
    with torch.no_grad():
        return model.encode(ids, REAL, SEGMENTS, GLOBALS if isinstance(pattern, Window) else None)


def cases():
    yield from (pytest.param(pattern, None, id=pattern.pattern) for pattern in PATTERNS)
    pooling = Pooling(layers=2, kernel=6, stride=4, padding=3, reference_init=True)
    yield pytest.param(Block(8), pooling, id="pooled")
    yield pytest.param(Block(8), replace(pooling, reference_padding=True), id="pooled, reference padding")


@pytest.mark.parametrize(("pattern", "pooling"), cases())
def test_no_document_knows_of_another(pattern, pooling):
    torch.manual_seed(0)
    ids = torch.randint(0, SEGMENTS_VOCAB, (2, LENGTH))
    before = packed_states(pattern, ids, pooling)
    for document in range(4):
        inside = torch.eq(SEGMENTS, document)
        changed = torch.where(inside, (ids + torch.randint(1, SEGMENTS_VOCAB, ids.shape)) % SEGMENTS_VOCAB, ids)
        after = packed_states(pattern, changed, pooling)
        torch.testing.assert_close(after[~inside & REAL], before[~inside & REAL], atol=1e-6, rtol=0)
        assert (after[inside] != before[inside]).any(-1).all()


def test_the_law_is_asked_of_every_pattern():
    known = get_args(get_type_hints(EncoderConfig)["attention"])
    assert {type(pattern) for pattern in PATTERNS} == set(known)


FLOPS_VOCAB, FLOPS_LENGTH, FLOPS_WIDTH, INNER = 29, 19, 16, 24


def make(pattern, positions):
    config = ModelConfig(
        width=FLOPS_WIDTH,
        heads=HeadsConfig(count=4, width=INNER // 4),
        feed_forward=FeedForwardConfig(width=20),
        encoder=EncoderConfig(layers=3, positions=positions, attention=pattern),
        dropout=0.0,
    )
    return config, build_model(config, FLOPS_VOCAB, seed=0).eval()


def counted(model, global_positions=None) -> int:
    """Of logits at all positions of one row."""
    ids = torch.zeros(1, FLOPS_LENGTH, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # which does not know the others
        model.logits(model.encode(ids, global_positions=global_positions))
    return counter.get_total_flops()


def test_global_positions_cost_their_projections_and_all_pairs():
    config, model = make(Window(4), Learned(FLOPS_LENGTH))
    chosen = torch.zeros(1, FLOPS_LENGTH, dtype=torch.bool)
    chosen[0, [0, 3, 4, 11]] = True
    with_none, with_four = (forward_flops(config, FLOPS_VOCAB, FLOPS_LENGTH, FLOPS_LENGTH, count) for count in (0, 4))
    assert with_four - with_none == counted(model, chosen) - counted(model)


def test_summaries_are_projected_to_keys_and_values():
    pattern = TGlobal(3, 4)
    config, model = make(pattern, Buckets(8, 9))
    attention = 3 * pattern.flops(FLOPS_LENGTH, INNER)  # an operator of ours, which the counter takes for nothing
    queries = (
        3 * 2 * FLOPS_WIDTH * INNER * (FLOPS_LENGTH // 4)
    )  # summaries ask nothing: theirs are a by-product of one matrix
    assert forward_flops(config, FLOPS_VOCAB, FLOPS_LENGTH, FLOPS_LENGTH) == counted(model) + attention - queries


@pytest.mark.parametrize("cross", ["each", "merged"])
def test_grouped_heads_and_patterns_of_layers_cost_what_they_compute(cross):
    """Matrix products are counted, attention is that of the patterns: kernels compute more pairs than these."""
    config = replace(
        make(Layered(2, 3, 2), Rotary())[0],
        heads=HeadsConfig(count=4, width=INNER // 4, kv_count=2),
        decoder=DecoderConfig(layers=3, positions=Rotary(), attention=Layered(4, 0, 2, causal=True), cross=cross),
    )
    model: Any = build_model(config, FLOPS_VOCAB, seed=0).eval()
    ids, target = torch.zeros(1, FLOPS_LENGTH, dtype=torch.int64), torch.zeros(1, 7, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.logits(model.decode(target, model.encode(ids)))
    products = sum(
        count
        for operator, count in counter.get_flop_counts()["Global"].items()
        if operator is not torch.ops.aten.bmm  # attention
    )
    spans, full = Span(2, 3).flops(FLOPS_LENGTH, INNER), 4 * FLOPS_LENGTH**2 * INNER
    own = 2 * Span(4, 0).flops(7, INNER) + 2 * 7 * 8 * INNER
    attention = 2 * spans + full + own + 3 * 4 * 7 * FLOPS_LENGTH * INNER
    assert forward_flops(config, FLOPS_VOCAB, FLOPS_LENGTH, 7) == products + attention
