"""The context of a batch against its definition, row by row, and positions."""

import weakref
from dataclasses import replace
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.t5.modeling_t5 import T5Attention

from corpora.errors import FarspanError
from tests.trainer.conversion.models import tiny_config
from tests.trainer.generation.models import model_of
from tests.trainer.model.dense import HEADS, WIDTH, cut, dense, right_padded, seen_by
from trainer.data.batch import Batch
from trainer.model.build import make_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.context import Context, make_context, on_host, send
from trainer.model.kernels import choose, flex, varlen
from trainer.model.kernels.chunks import Inputs
from trainer.model.layers.attention import SelfAttention
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns import (
    BigBird,
    Block,
    BlockGlobal,
    Full,
    Layered,
    Local,
    Overlap,
    Span,
    Staggered,
    TGlobal,
    Window,
)
from trainer.model.positions import (
    Buckets,
    Learned,
    NoPositions,
    Rotary,
    Sinusoidal,
    SinusoidalPositions,
    bucket,
    rotate,
)


@given(
    chosen=st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=4),
    lengths=st.lists(st.integers(0, 7), min_size=4, max_size=4),
    padded=st.booleans(),
)
def test_global_positions_are_gathered_in_order_without_padding(chosen, lengths, padded):
    asked = torch.tensor(chosen)
    real = right_padded(lengths[: len(chosen)], 7) if padded else None
    found = make_context(real, None, asked).globals
    expected = [
        [place for place, wanted in enumerate(row) if wanted and (real is None or real[number, place])]
        for number, row in enumerate(chosen)
    ]
    if not any(expected):
        assert found is None
        return
    assert found.at.shape[1] == max(map(len, expected))  # no wider than it must be
    for number, places in enumerate(expected):
        assert found.at[number][found.padding_mask[number]].tolist() == places
        assert (found.at[number][~found.padding_mask[number]] == 0).all()
        assert found.chosen[number].nonzero().flatten().tolist() == places


def test_documents_are_counted_over_the_batch():
    assert make_context(segments=torch.tensor([[0, 0, 1], [0, 1, 2]])).most_documents == 3
    assert make_context(segments=torch.full((2, 3), -1)).most_documents == 1  # rows of padding alone
    assert make_context().most_documents == 1


def test_a_context_of_nothing_is_the_default():
    assert make_context() == Context()
    real = right_padded([3, 1], 3)
    assert make_context(real).padding_mask is real
    assert make_context(global_positions=torch.zeros(2, 3, dtype=torch.bool)).globals is None
    assert make_context(global_positions=torch.zeros(0, 3, dtype=torch.bool)).globals is None


# A pass through the model never waits for the device: on ``meta`` there are no values to wait for

META = torch.device("meta")


POOLING = Pooling(layers=2, kernel=4, stride=2, padding=2)


def config_of(pattern, decoder=True, positions=Learned(32), pooling=None, **options):  # noqa: B008
    return ModelConfig(
        width=16, heads=HeadsConfig(count=2), feed_forward=FeedForwardConfig(width=8), dropout=0.0,
        encoder=EncoderConfig(layers=2, positions=positions, attention=pattern, pooling=pooling),
        decoder=DecoderConfig(layers=1, positions=Learned(8), **options) if decoder else None,
    )  # fmt: skip


def batch_of(decoder=True, packed=False, shown=False) -> Batch:
    real = right_padded([10, 3, 7], 10)
    source = torch.arange(30, dtype=torch.int32).view(3, 10) % 20
    target = torch.arange(12, dtype=torch.int32).view(3, 4)
    return Batch(
        samples=np.arange(3), sequence_ids=np.zeros((3, 16), np.uint8), source_ids=source, source_padding_mask=real,
        decoder_ids=target if decoder else None,
        labels=target if decoder else source.masked_fill(source % 4 > 0, -100), source_tokens=20, target_tokens=12,
        segment_ids=cut(real, 3) if packed else None,
        global_positions=torch.arange(10).expand(3, -1) < 2 if shown else None,
    )  # fmt: skip


@pytest.fixture
def on_a_gpu(monkeypatch):
    """The ways of attending that a CUDA device has, as far as they run without one."""
    monkeypatch.setattr(choose, "can_fuse", lambda q, dropout: True)
    monkeypatch.setattr(flex, "AVAILABLE", False)
    monkeypatch.setattr(varlen, "AVAILABLE", True)
    monkeypatch.setattr(varlen, "varlen_attn", lambda q, *others, **named: torch.empty_like(q), raising=False)


MODELS = {
    **{type(pattern).__name__: config_of(pattern) for pattern in (
        Full(), Block(4), Overlap(4), BlockGlobal(4, 1), Staggered(size=4, global_tokens=2), Window(4), Span(2, 1),
        Layered(2, 1, 2), BigBird(1, 1),
    )},
    "Local": config_of(Local(2), positions=Buckets(count=8, distance=9)),
    "TGlobal": config_of(TGlobal(2, 3), positions=Buckets(count=8, distance=9)),
    "pooled": config_of(Block(4), pooling=POOLING),
    "pooled, reference padding": config_of(Block(4), pooling=replace(POOLING, reference_padding=True)),
    "merged": config_of(Full(), cross="merged"),
    "the decoder sees learned tokens": config_of(Staggered(size=4, global_tokens=2), global_cross_attention=True),
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_pass_waits_for_nothing(on_a_gpu, name, packed):
    with META:
        model = make_model(MODELS[name], 20)
    batch = batch_of(packed=packed, shown=name == "Window").to(META)
    model(**batch.inputs).minimised.backward()
    real = weakref.ref(batch.source_padding_mask)
    del batch
    assert real() is None, "what was made for a batch holds it"


def test_without_originals_a_pass_would_wait(on_a_gpu):
    with META:
        model = make_model(MODELS["pooled"], 20)
    batch = batch_of().to(META)
    unknown = {name: None if x is None else x.clone() for name, x in batch.inputs.items()}
    with pytest.raises((RuntimeError, NotImplementedError)):  # the host does not know what these are copies of
        model(**unknown)


def test_every_pattern_is_tried():
    assert {type(config.encoder.attention) for config in MODELS.values()} == set(
        get_args(get_type_hints(EncoderConfig)["attention"])
    )


def test_an_operator_waits_for_nothing():
    """The operator of a band on a device; no model on ``meta`` enters it."""
    q, k = torch.empty(2, 10, 2, 4, device=META), torch.empty(2, 13, 2, 4, device=META)
    near, far = torch.empty(2, 5, device=META), torch.empty(2, 5, device=META)
    documents = torch.empty(2, 13, dtype=torch.int64, device=META)
    inputs = Inputs(q, k, k, near, far, documents[:, :10], documents, None, 3, 1.0, 0.0)
    for chunk in inputs.chunks():
        inputs.sum_far(chunk.weights[..., -3:], chunk.queries.start, chunk.own)


def test_an_encoder_alone_waits_for_nothing():
    with META:
        model = make_model(config_of(Block(4), decoder=False), 20)
    model(**batch_of(decoder=False).to(META).inputs).minimised.backward()


def test_a_tensor_that_was_sent_is_known_as_long_as_it_lives():
    x = torch.arange(3)
    copy = send(x, META)
    assert on_host(copy) is x
    assert on_host(copy + 1).device == META
    assert send(x, x.device) is x
    assert on_host(x) is x


@pytest.mark.parametrize("base", [10_000.0, 50_000.0])
def test_waves_reach_from_two_pi_to_the_base(base):
    """PEGASUS-X, table 9: the second variant's longest wave is 2 pi times the base, the first's one step shorter."""
    width, length = 16, 300
    for waves, steps in ((Sinusoidal("pegasus"), width / 2), (Sinusoidal("pegasus_x"), width / 2 - 1)):
        table = SinusoidalPositions(replace(waves, base=base))(torch.zeros(1, length, width))
        rates = [base ** -(pair / steps) for pair in range(width // 2)]
        for pair, rate in enumerate(rates):
            angles = torch.arange(length).double() * rate
            torch.testing.assert_close(table[:, pair].double(), angles.sin(), atol=1e-4, rtol=0)
            torch.testing.assert_close(table[:, pair + width // 2].double(), angles.cos(), atol=1e-4, rtol=0)


def test_without_positions_an_encoder_does_not_see_the_order():
    config = tiny_config(EncoderConfig(layers=2, positions=NoPositions(), attention=Full()))
    model, order = model_of(config), torch.randperm(9, generator=torch.Generator().manual_seed(0))
    ids = torch.arange(3, 12)[None]
    with torch.no_grad():
        plain, shuffled = (model.encode(x).states for x in (ids, ids[:, order]))
    torch.testing.assert_close(plain[:, order], shuffled, atol=1e-5, rtol=0)


# Buckets of relative positions: those of T5, their order and their borders


@pytest.mark.parametrize(("count", "distance"), [(32, 128), (8, 12), (64, 500)])
@pytest.mark.parametrize("both_ways", [True, False])
def test_buckets_are_theirs_over_a_wide_range(count, distance, both_ways):
    offsets = torch.cat([torch.arange(-20_000, 20_001), torch.tensor([-(2**31), -(10**6), 10**6, 2**31])])
    expected = T5Attention._relative_position_bucket(offsets, both_ways, count, distance)
    assert torch.equal(bucket(offsets, Buckets(count, distance), both_ways), expected)


@given(count=st.integers(1, 16).map(lambda quarter: 4 * quarter), distance=st.integers(1, 2000), both=st.booleans())
def test_buckets_are_single_distances_first_then_wider_and_wider(count, distance, both):
    buckets = Buckets(count, count // 2 + distance)
    behind = bucket(-torch.arange(buckets.distance + 50), buckets, both)
    assert (behind.diff() >= 0).all()
    single = (count // 2 if both else count) // 2
    assert behind[:single].tolist() == list(range(single))
    assert behind[buckets.distance :].unique().tolist() == [(count // 2 if both else count) - 1]
    ahead = bucket(torch.arange(1, 9), buckets, both)
    assert torch.equal(ahead, behind[1:9] + count // 2) if both else (ahead == 0).all()


# Rotary positions against complex numbers, and what they are for: only differences of positions count

CPU = torch.device("cpu")


def turned(x: torch.Tensor, theta: float) -> torch.Tensor:
    """``(B, L, H, D)``, dimensions i and i + D / 2 as one complex number that is multiplied by e^(i angle)."""
    length, width = x.shape[1], x.shape[3]
    pairs = torch.complex(*x.double().chunk(2, -1))
    angles = torch.outer(torch.arange(length).double(), theta ** (-torch.arange(width // 2).double() * 2 / width))
    pairs = pairs * torch.exp(1j * angles)[:, None, :]
    return torch.cat([pairs.real, pairs.imag], -1)


@pytest.mark.parametrize("theta", [10_000.0, 500.0])
@pytest.mark.parametrize("length", [1, 40])
def test_equals_a_product_of_complex_numbers(theta, length):
    x = torch.randn(2, length, HEADS, WIDTH)
    got = rotate(x, Rotary(theta).rotation(length, WIDTH, CPU))
    torch.testing.assert_close(got, turned(x, theta).float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("trained", [64, 4096])
@pytest.mark.parametrize("factor", [2.0, 8.0])
@pytest.mark.parametrize("scaling", ["linear", "yarn"])
def test_scaled_rotations_are_those_of_transformers(scaling, factor, trained):
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    values = {"rope_type": scaling, "factor": factor, "rope_theta": 5000.0}
    if scaling == "yarn":
        values["original_max_position_embeddings"] = trained
    config = LlamaConfig(hidden_size=64, num_attention_heads=2, max_position_embeddings=trained, rope_parameters=values)
    rates, size = ROPE_INIT_FUNCTIONS[scaling](config, CPU)
    angles = torch.arange(40)[:, None] * rates
    rotary = Rotary(5000.0, local_theta=100.0, factor=factor, scaling=scaling, trained_length=trained)
    whole, local = rotary.rotations(40, 32, CPU)
    for found, expected in zip(whole, (angles.cos() * size, angles.sin() * size), strict=True):
        torch.testing.assert_close(found, torch.cat([expected, expected], -1), atol=1e-5, rtol=1e-5)
    for found, expected in zip(local, Rotary(100.0).rotation(40, 32, CPU), strict=True):
        assert torch.equal(found, expected)


def test_a_raised_base_stretches_the_longest_wave_and_keeps_the_shortest():
    plain, scaled = (Rotary(factor=factor, scaling="ntk").rotation(200, 32, CPU)[1] for factor in (1.0, 8.0))
    torch.testing.assert_close(scaled[:, 0], plain[:, 0])
    torch.testing.assert_close(scaled[::8, 15], plain[:25, 15], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (Buckets, {"count": 6}, "count is 6; it must be a multiple of 4"),
        (Buckets, {"count": 0}, "count is 0"),
        (Buckets, {"count": 32, "distance": 16}, "distance is 16 with count 32; it must be above 16"),
        (Sinusoidal, {"base": 1.0}, "base is 1"),
        (Rotary, {"factor": 0.5}, "factor is 0.5; it must be at least 1"),
        (Rotary, {"local_theta": 1.0}, "local_theta is 1.0; it must be above 1"),
        *((Rotary, {"theta": theta}, f"theta is {theta}") for theta in (1.0, 0.0, -3.0)),
        (Rotary, {"factor": 2.0, "scaling": "yarn"}, "trained_length is None; yarn needs"),
    ],
)
def test_positions_that_cannot_be_are_refused(kind, options, said):
    with pytest.raises(FarspanError, match=said):
        kind(**options)


def test_scores_depend_on_differences_of_positions_only():
    q, k = torch.randn(2, WIDTH)
    rotation = Rotary().rotation(30, WIDTH, CPU)
    queries, keys = (rotate(x.expand(1, 30, 1, WIDTH), rotation)[0, :, 0] for x in (q, k))
    scores = queries @ keys.T  # (30, 30)
    for offset in range(-29, 30):
        diagonal = scores.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-5, rtol=0)
    assert scores[0].std() > 0.1


def test_tokens_before_the_sequence_stay_as_they_are():
    x = torch.randn(2, 3 + 7, HEADS, WIDTH)
    rotation = Rotary().rotation(7, WIDTH, CPU)
    assert torch.equal(rotate(x, rotation)[:, :3], x[:, :3])
    assert torch.equal(rotate(x, rotation)[:, 3:], rotate(x[:, 3:], rotation))
    assert rotate(x, None) is x


@pytest.mark.parametrize("pattern", [Full(), Block(4), Overlap(4), BlockGlobal(4, 1)], ids=lambda p: p.pattern)
def test_a_layer_turns_queries_and_keys_within_any_pattern(pattern):
    length, width = 11, HEADS * WIDTH
    layer = SelfAttention(width, HeadsConfig(count=HEADS), pattern, 0.0)
    x, real = torch.randn(2, length, width), right_padded([11, 6], length)
    context = make_context(real)._replace(rotation=Rotary(100.0).rotation(length, WIDTH, CPU))
    q, k, v = layer.qkv(x).unflatten(-1, (3, HEADS, WIDTH)).unbind(2)
    mixed = dense(turned(q, 100.0), turned(k, 100.0), v, seen_by(pattern, real))
    expected = layer.out(mixed.float().flatten(2))
    torch.testing.assert_close(layer(x, context)[real], expected[real], atol=1e-5, rtol=0)
    without = layer(x, context._replace(rotation=None))
    assert not torch.allclose(without[real], expected[real], atol=1e-3)
