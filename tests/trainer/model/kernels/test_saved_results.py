"""Attention by FlexAttention is computed once though its layer is run twice."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.model.dense import right_padded
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.kernels import choose, flex
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.window import Window
from trainer.model.positions import Learned
from trainer.parallel.wrapping import apply_activation_checkpointing

REAL = right_padded([10, 3], 10)


def dense(q, k, v, score_mod, block_mask, scale):
    """FlexAttention's result, with a backward pass on a CPU."""
    places = [torch.arange(n) for n in (len(q), q.shape[1], q.shape[2], k.shape[2])]
    b, h, i, j = (place.view([-1 if at == axis else 1 for at in range(4)]) for axis, place in enumerate(places))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, block_mask.mask_mod(b, h, i, j), scale=scale)


@pytest.mark.parametrize("mode", ["none", "layer", "selective"])
def test_flex_attention_runs_once_where_its_result_is_kept(monkeypatch, mode):
    config = ModelConfig(
        width=32, heads=HeadsConfig(count=2), feed_forward=FeedForwardConfig(width=8), dropout=0.0, init_std=0.3,
        encoder=EncoderConfig(layers=3, positions=Learned(32), attention=Window(4)),
        decoder=DecoderConfig(layers=1, positions=Learned(8)),
    )  # fmt: skip
    model, calls = build_model(config, 20, seed=0), []

    def kernel(*given, **named):
        calls.append(1)
        return dense(*given, **named)

    batch = {
        "source_ids": torch.arange(20).view(2, 10),
        "decoder_ids": torch.arange(8).view(2, 4),
        "labels": torch.arange(8).view(2, 4) + 1,
        "source_padding_mask": REAL,
    }

    def learned():
        for parameter in model.parameters():
            parameter.grad = None
        loss = model(**batch).minimised
        loss.backward()
        return loss, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)

    expected = learned()
    monkeypatch.setattr(choose, "fused", lambda q, dropout: True)
    monkeypatch.setattr(choose.varlen, "AVAILABLE", False)
    monkeypatch.setattr(flex, "flex_attention", kernel)
    apply_activation_checkpointing(model, mode)
    got = learned()
    assert len(calls) == (6 if mode == "layer" else 3)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-3)
    calls.clear()
    learned()  # nothing is left over for the next step
    assert len(calls) == (6 if mode == "layer" else 3)
