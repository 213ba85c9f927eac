"""Pooled attention against a loop over windows."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from corpora.errors import FarspanError
from trainer.model.attention import HeadsConfig
from trainer.model.context import Context, make_context
from trainer.model.pooled import PooledAttention, Pooling

WIDTH, HEADS = 8, 2
SMALL = Pooling(layers=1, kernel=6, stride=4, padding=3, reference_init=True)
REFERENCE = Pooling(layers=1, kernel=6, stride=4, padding=3, reference_init=True, reference_padding=True)


def restated(layer: PooledAttention, x: torch.Tensor, length: int) -> torch.Tensor:
    """One row ``(length, d)``, without padding, window by window in float64."""
    pooling = layer.pooling
    q, k, v = (x[:length].double() @ layer.qkv.weight.double().T + layer.qkv.bias.double()).chunk(3, -1)
    keys, values, start = [], [], -pooling.padding
    while start + pooling.kernel <= length + pooling.padding:
        inside = slice(max(start, 0), start + pooling.kernel)
        divisor = pooling.kernel if pooling.reference_padding else len(k[inside])
        keys.append(k[inside].sum(0) / divisor)
        values.append(v[inside].sum(0) / divisor)
        start += pooling.stride
    mixed = []
    for head in range(HEADS):
        part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
        scores = q[:, part] @ torch.stack(keys)[:, part].T / (WIDTH // HEADS) ** 0.5
        mixed.append(scores.softmax(-1) @ torch.stack(values)[:, part])
    return torch.cat(mixed, -1) @ layer.out.weight.double().T + layer.out.bias.double()


@pytest.mark.parametrize("pooling", [SMALL, REFERENCE, Pooling(layers=1)])
@pytest.mark.parametrize("length", [1, 2, 5, 11, 24, 37])
def test_equals_the_restatement_with_and_without_padding(pooling, length):
    layer = PooledAttention(WIDTH, HeadsConfig(count=HEADS), pooling, 0.0)
    x = torch.randn(2, 40, WIDTH)
    expected = restated(layer, x[0], length).float()
    torch.testing.assert_close(layer(x[:, :length], Context())[0], expected, atol=1e-5, rtol=0)
    real = torch.arange(40) < torch.tensor([length, 40])[:, None]
    torch.testing.assert_close(layer(x, make_context(real))[0, :length], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(layer(x, make_context(real))[1], layer(x[1:], Context())[0], atol=1e-5, rtol=0)


def test_a_row_of_padding_gives_the_bias_and_finite_gradients():
    layer = PooledAttention(WIDTH, HeadsConfig(count=HEADS), SMALL, 0.0)
    x = torch.randn(2, 12, WIDTH, requires_grad=True)
    y = layer(x, make_context(torch.arange(12) < torch.tensor([[12], [0]])))
    assert (y[1] == layer.out.bias).all()
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (x.grad[1] == 0).all()


def test_pooled_keys_are_contiguous_and_as_many_as_published():
    layer = PooledAttention(WIDTH, HeadsConfig(count=HEADS), Pooling(), 0.0)
    pooled = layer._pool(torch.randn(1, 16_384, 2 * WIDTH), None)
    assert pooled.shape == (1, 1366, 2 * WIDTH)
    assert pooled.is_contiguous()
    image = torch.ones(1, 2 * WIDTH, 16_384)
    assert F.avg_pool1d(image, 18, 12, 9).shape[-1] == Pooling().windows(16_384)


def test_pooled_attention_takes_the_fast_kernel():
    layer = PooledAttention(WIDTH, HeadsConfig(count=HEADS), SMALL, 0.0)
    real = torch.arange(24) < torch.tensor([[24], [9]])
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        layer(torch.randn(2, 24, WIDTH), Context()).sum().backward()
        layer(torch.randn(2, 24, WIDTH), make_context(real)).sum().backward()


@pytest.mark.parametrize(
    ("options", "field"),
    [({"stride": 0}, "stride"), ({"stride": 19}, "stride"), ({"padding": 8}, "padding"), ({"layers": 0}, "layers")],
)
def test_bad_windows_are_refused(options, field):
    with pytest.raises(FarspanError, match=f"pooling.{field}"):
        Pooling(**options)
