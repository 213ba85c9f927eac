"""Operations of a forward pass by formula, against the counts of torch; patterns and decoder have their own tests."""

from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from trainer.metrics import forward_flops
from trainer.model.build import build_model
from trainer.model.config import EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window
from trainer.model.positions import Buckets, Learned

VOCAB, LENGTH, WIDTH, INNER = 29, 19, 16, 24


def make(pattern, positions):
    config = ModelConfig(
        width=WIDTH,
        heads=HeadsConfig(count=4, width=INNER // 4),
        feed_forward=FeedForwardConfig(width=20),
        encoder=EncoderConfig(layers=3, positions=positions, attention=pattern),
        dropout=0.0,
    )
    return config, build_model(config, VOCAB, seed=0).eval()


def counted(model, global_positions=None) -> int:
    """Of logits at all positions of one row."""
    ids = torch.zeros(1, LENGTH, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # which does not know the others
        model.logits(model.encode(ids, global_positions=global_positions))
    return counter.get_total_flops()


def test_global_positions_cost_their_projections_and_all_pairs():
    config, model = make(Window(4), Learned(LENGTH))
    chosen = torch.zeros(1, LENGTH, dtype=torch.bool)
    chosen[0, [0, 3, 4, 11]] = True
    with_none, with_four = (forward_flops(config, VOCAB, LENGTH, LENGTH, count) for count in (0, 4))
    assert with_four - with_none == counted(model, chosen) - counted(model)


def test_summaries_are_projected_to_keys_and_values():
    pattern = TGlobal(3, 4)
    config, model = make(pattern, Buckets(8, 9))
    attention = 3 * pattern.flops(LENGTH, INNER)  # an operator of ours, which the counter takes for nothing
    queries = 3 * 2 * WIDTH * INNER * (LENGTH // 4)  # summaries ask nothing: theirs are a by-product of one matrix
    assert forward_flops(config, VOCAB, LENGTH, LENGTH) == counted(model) + attention - queries
