"""Tests of sublayers and pooled attention."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from corpora.errors import FarspanError
from tests.trainer.model.dense import HEADS, WIDTH, cut, right_padded
from trainer.model.context import Context, make_context
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import PooledAttention, Pooling
from trainer.model.layers.sublayers import (
    FeedForwardConfig,
    NormConfig,
)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FeedForwardConfig(width=0), "model.feed_forward.width is 0"),
        (lambda: NormConfig(eps=0.0), "model.norm.eps is 0.0"),
        (lambda: NormConfig(eps=math.nan), "model.norm.eps is nan"),
        *((lambda stride=stride: Pooling(stride=stride), "pooling.stride") for stride in (0, 19)),
        (lambda: Pooling(padding=8), "pooling.padding"),
        (lambda: Pooling(layers=0), "pooling.layers"),
    ],
)
def test_bad_parts_are_refused(make, said):
    with pytest.raises(FarspanError, match=said):
        make()


SMALL = Pooling(layers=1, kernel=6, stride=4, padding=3, reference_init=True)

REFERENCE = Pooling(layers=1, kernel=6, stride=4, padding=3, reference_init=True, reference_padding=True)


def restated(layer: PooledAttention, x: torch.Tensor, documents: torch.Tensor, padded: int = 0) -> torch.Tensor:
    """One row ``(L, d)`` of ``(L,)`` documents, window by window in float64.

    Args:
        padded: positions of its batch, which the released code's windows cover; 0 for those of the row alone.
    """
    pooling, (length, width) = layer.pooling, x.shape
    q = F.linear(x.double(), layer.q.weight.double(), layer.q.bias.double())
    k, v = F.linear(x.double(), layer.kv.weight.double(), layer.kv.bias.double()).chunk(2, -1)
    keys, values, owners, start = [], [], [], -pooling.padding
    while start < length and start + pooling.kernel <= max(length, padded) + pooling.padding:
        owners.append(documents[min(start + pooling.padding, length - 1)])
        inside = [i for i in range(max(start, 0), min(start + pooling.kernel, length)) if documents[i] == owners[-1]]
        divisor = pooling.kernel if pooling.reference_padding else len(inside)
        keys.append(k[inside].sum(0) / divisor)
        values.append(v[inside].sum(0) / divisor)
        start += pooling.stride
    hidden = documents[:, None] != torch.stack(owners)
    mixed = []
    for head in range(HEADS):
        part = slice(head * width // HEADS, (head + 1) * width // HEADS)
        scores = q[:, part] @ torch.stack(keys)[:, part].T / (width // HEADS) ** 0.5
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden.all(-1, keepdim=True), 0.0)
        mixed.append(weights @ torch.stack(values)[:, part])
    return F.linear(torch.cat(mixed, -1), layer.out.weight.double(), layer.out.bias.double()).float()


@pytest.mark.parametrize("pooling", [SMALL, Pooling(layers=1)])
@pytest.mark.parametrize("length", [1, 2, 5, 11, 24, 37])
def test_equals_the_restatement_with_and_without_padding(pooling, length):
    layer = PooledAttention(WIDTH, HeadsConfig(count=HEADS), pooling, 0.0)
    x = torch.randn(2, 40, WIDTH)
    expected = restated(layer, x[0, :length], torch.zeros(length))
    torch.testing.assert_close(layer(x[:, :length], Context())[0], expected, atol=1e-5, rtol=0)
    real = torch.arange(40) < torch.tensor([length, 40])[:, None]
    torch.testing.assert_close(layer(x, make_context(real))[0, :length], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(layer(x, make_context(real))[1], layer(x[1:], Context())[0], atol=1e-5, rtol=0)


def released(layer: PooledAttention, x: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """A padded batch ``(B, T, d)`` as the released layer computes it, by the library's own pooling and attention: keys
    and values of padding are zero, averages are over the whole batch's width, and a window is hidden where the share of
    padding among its positions, rounded down, is 1."""
    padding = torch.arange(x.shape[1]) >= torch.tensor(lengths)[:, None]
    q = layer.q(x)
    k, v = layer.kv(x).masked_fill(padding[..., None], 0.0).chunk(2, -1)
    k, v = (F.avg_pool1d(part.transpose(1, 2), 18, 12, 9).transpose(1, 2) for part in (k, v))
    hidden = F.avg_pool1d(padding.float(), 18, 12, 9, count_include_pad=False).floor().bool()
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden[:, None, None])
    return layer.out(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("width", [48, 59])
def test_reference_padding_is_the_released_computation_for_rows_of_any_length(width):
    layer = PooledAttention(WIDTH, HeadsConfig(count=HEADS), Pooling(reference_padding=True, reference_init=True), 0.0)
    lengths = list(range(1, width + 1))  # every remainder of 12
    x, real = torch.randn(width, width, WIDTH), right_padded(lengths, width)
    expected, found = released(layer, x, lengths), layer(x, make_context(real))
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("pooling", [SMALL, REFERENCE, Pooling(layers=1, kernel=5, stride=2, padding=2)])
@pytest.mark.parametrize("seed", range(6))
def test_documents_own_windows_and_see_only_those(pooling, seed):
    torch.manual_seed(seed)
    layer = PooledAttention(WIDTH, HeadsConfig(count=HEADS), pooling, 0.0)
    x, lengths = torch.randn(4, 31, WIDTH, requires_grad=True), [31, 24, 7, 0]
    real = right_padded(lengths, 31)
    segments = cut(real, seed)
    y = layer(x, make_context(real, segments))
    for row, length in enumerate(lengths[:3]):
        padded = 31 if pooling.reference_padding else 0
        expected = restated(layer, x[row, :length], segments[row, :length], padded)
        torch.testing.assert_close(y[row, :length], expected, atol=1e-5, rtol=0)
    assert (y[3] == layer.out.bias).all()
    assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()


def test_pooled_keys_are_contiguous_and_as_many_as_published():
    layer = PooledAttention(WIDTH, HeadsConfig(count=HEADS), Pooling(), 0.0)
    pooled = layer._pool(torch.randn(1, 16_384, WIDTH), Context(), None)
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


def test_operations_are_those_that_torch_counts():
    length, width, inner = 40, WIDTH, 12
    layer = PooledAttention(width, HeadsConfig(count=HEADS, width=inner // HEADS), SMALL, 0.0)
    x = torch.randn(1, length, width)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        layer(x, Context())
    assert SMALL.flops(length, width, inner) == counter.get_total_flops()
