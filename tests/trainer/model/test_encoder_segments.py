"""Packed rows: with every pattern, a document does not depend on the other documents of its row."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest
import torch

from trainer.model.build import build_model
from trainer.model.config import EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.block import Block
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.full import Full
from trainer.model.patterns.local import Local
from trainer.model.patterns.overlap import Overlap
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window
from trainer.model.positions import Buckets, Learned

VOCAB, LENGTH = 40, 29
PATTERNS = [
    Full(),
    Block(8),
    Overlap(8),
    BlockGlobal(8, 2),
    Staggered(8, 3),
    Local(4),
    TGlobal(4, 3),
    Window(6),
]
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
    model = build_model(config, VOCAB, seed=0).eval()
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
    ids = torch.randint(0, VOCAB, (2, LENGTH))
    before = packed_states(pattern, ids, pooling)
    for document in range(4):
        inside = document == SEGMENTS
        changed = torch.where(inside, (ids + torch.randint(1, VOCAB, ids.shape)) % VOCAB, ids)
        after = packed_states(pattern, changed, pooling)
        torch.testing.assert_close(after[~inside & REAL], before[~inside & REAL], atol=1e-6, rtol=0)
        assert (after[inside] != before[inside]).any(-1).all()


def test_the_law_is_asked_of_every_pattern():
    known = get_args(get_type_hints(EncoderConfig)["attention"])
    assert {type(pattern) for pattern in PATTERNS} == set(known)
