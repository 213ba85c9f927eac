"""A sample's text and score whatever the batch: all patterns, bit for bit where one thread computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from corpora.storage.ragged import Ragged
from tests.trainer.conversion.models import tiny_config
from tests.trainer.generation.models import IDS, alone, assert_same, model_of, ragged
from tests.trainer.generation.test_cached_decoder import PATTERNS
from trainer.generation.config import GenerationConfig
from trainer.generation.generate import generate
from trainer.model.build import build_model
from trainer.model.config import EncoderConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.block import Block
from trainer.model.patterns.window import Window
from trainer.model.positions import Buckets, Learned

POOLED = (Block(8), Pooling(1, 6, 4, 3))
ENCODERS = [*((pattern, None) for pattern in PATTERNS), POOLED]
IDENTITIES = [*(pattern.pattern for pattern in PATTERNS), "pooled"]


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def encoder(pattern, pooling, positions):
    known = Buckets(8, 12) if pattern.offsets(1) else Learned(positions)
    return EncoderConfig(layers=2, positions=known, attention=pattern, pooling=pooling)


def assert_alone(model, sources, config):
    """Every sample, and every pair of neighbours in reverse order."""
    found = generate(model, sources, config, IDS)
    for sample in range(len(sources)):
        one = generate(model, alone(sources, sample), config, IDS)
        assert one.tokens[0].tolist() == found.tokens[sample].tolist()
        assert_same(one.scores, found.scores[[sample]])
    rows, prompts = np.arange(len(sources))[::-1][:2], sources.prompts
    few = generate(model, replace(sources, rows=sources.encoder_rows[rows], prompts=prompts.take(rows)), config, IDS)
    assert [tokens.tolist() for tokens in few.tokens] == [found.tokens[row].tolist() for row in rows]
    assert_same(few.scores, found.scores[rows])


def with_globals(sources, pattern):
    if not isinstance(pattern, Window):
        return sources
    chosen = torch.arange(sources.source_ids.shape[1]) % torch.tensor([[5], [40], [9], [7]]) == 0
    return replace(sources, global_positions=chosen & sources.source_padding_mask)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("pattern", "pooling"), ENCODERS, ids=IDENTITIES)
def test_a_sample_does_not_depend_on_its_batch(pattern, pooling):
    model = model_of(replace(tiny_config(positions=64), encoder=encoder(pattern, pooling, 64)))
    prompts = Ragged.from_rows([[], [5, 6, 7], [4], [8, 8]], np.int32)
    sources = with_globals(ragged([33, 3, 48, 40], prompts=prompts), pattern)
    assert_alone(model, sources, GenerationConfig(beams=3, max_tokens=6, no_repeat_ngram=2))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("pattern", "pooling"), ENCODERS, ids=IDENTITIES)
def test_a_sample_does_not_depend_on_its_batch_at_larger_sizes(pattern, pooling):
    config = replace(
        tiny_config(positions=512),
        width=256,
        heads=HeadsConfig(count=4),
        feed_forward=FeedForwardConfig(width=1024),
        encoder=encoder(pattern, pooling, 512),
        init_std=0.08,
    )
    model = build_model(config, 3000, seed=0).eval()
    prompts = Ragged.from_rows([[], [5, 6, 7], [4] * 20, [8, 8]], np.int32)
    sources = with_globals(ragged([333, 30, 480, 470], high=3000, prompts=prompts), pattern)
    for beams in (1, 4, 5):
        assert_alone(model, sources, GenerationConfig(beams=beams, max_tokens=40, no_repeat_ngram=3))
