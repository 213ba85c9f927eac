"""The context of a batch against its definition, row by row."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.model.dense import cut, right_padded
from trainer.data.batch import Batch
from trainer.model.build import make_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.context import Context, make_context, on_host, send
from trainer.model.kernels import choose, varlen
from trainer.model.kernels.chunks import Inputs
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.block import Block
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.full import Full
from trainer.model.patterns.layered import Layered
from trainer.model.patterns.local import Local
from trainer.model.patterns.overlap import Overlap
from trainer.model.patterns.span import Span
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window
from trainer.model.positions import Buckets, Learned


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
    assert make_context(segments=torch.tensor([[0, 0, 1], [0, 1, 2]])).documents == 3
    assert make_context(segments=torch.full((2, 3), -1)).documents == 1  # rows of padding alone
    assert make_context().documents == 1


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
    monkeypatch.setattr(choose.flex, "AVAILABLE", False)
    monkeypatch.setattr(varlen, "AVAILABLE", True)
    monkeypatch.setattr(varlen, "varlen_attn", lambda q, *others, **named: torch.empty_like(q), raising=False)


MODELS = {
    **{type(pattern).__name__: config_of(pattern) for pattern in (
        Full(), Block(4), Overlap(4), BlockGlobal(4, 1), Staggered(size=4, global_tokens=2), Window(4), Span(2, 1),
        Layered(2, 1, 2),
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
    unknown = replace(batch, **{name: None if x is None else x.clone() for name, x in batch.inputs.items()})
    with pytest.raises((RuntimeError, NotImplementedError)):  # the host does not know what these are copies of
        model(**unknown.inputs)


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
        inputs.sum_far(chunk.weights[..., -3:], chunk.queries.start, chunk.whole)


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
