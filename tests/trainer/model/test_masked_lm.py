from __future__ import annotations

import torch

from objectives.api.examples import IGNORED
from trainer.model.build import build_model
from trainer.model.config import EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.masked_lm import MaskedLM
from trainer.model.patterns.block import Block
from trainer.model.positions import Learned

CONFIG = ModelConfig(
    width=16, heads=HeadsConfig(count=4), feed_forward=FeedForwardConfig(width=32), dropout=0.0, init_std=0.3,
    encoder=EncoderConfig(layers=2, positions=Learned(40), attention=Block(8)),
)  # fmt: skip


def test_loss_counts_asked_positions_only():
    model = build_model(CONFIG, 50, seed=0)
    assert isinstance(model, MaskedLM)
    model.bias.data.normal_()
    ids = torch.randint(0, 50, (2, 20))
    labels = torch.full((2, 20), IGNORED)
    labels[0, [1, 7]] = torch.tensor([3, 4])
    labels[1, 19] = 5
    spoken = model.logits(model.encode(ids)).log_softmax(-1)
    expected = -(spoken[0, 1, 3] + spoken[0, 7, 4] + spoken[1, 19, 5])
    torch.testing.assert_close(model(ids, labels).minimised, expected, atol=1e-4, rtol=1e-5)


def test_nothing_asked_is_a_loss_of_zero_with_zero_gradients():
    model = build_model(CONFIG, 50, seed=0)
    loss = model(torch.randint(0, 50, (1, 9)), torch.full((1, 9), IGNORED)).minimised
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or (p.grad == 0).all() for p in model.parameters())
