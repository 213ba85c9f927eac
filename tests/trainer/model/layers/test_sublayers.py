"""Tests of sublayers and pooled attention."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from corpora.errors import FarspanError
from tests.trainer.model.dense import HEADS, WIDTH, cut, right_padded
from trainer.model.context import Context, make_context
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import PooledAttention, Pooling
from trainer.model.layers.sublayers import (
    ACTIVATIONS,
    EmbeddingConfig,
    Embeddings,
    FeedForward,
    FeedForwardConfig,
    NormConfig,
    Residual,
    SplitNorm,
    make_last_norm,
    make_norm,
)
from trainer.model.positions import Learned, Rotary


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FeedForwardConfig(width=0), "model.feed_forward.width is 0"),
        (lambda: NormConfig(eps=0.0), "model.norm.eps is 0.0"),
        (lambda: NormConfig(eps=math.nan), "model.norm.eps is nan"),
    ],
)
def test_bad_parts_are_refused(make, said):
    with pytest.raises(FarspanError, match=said):
        make()


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_a_norm_is_its_formula(kind):
    norm: Any = make_norm(6, NormConfig(kind=kind, eps=0.1))
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(4, 6)
    centred = x - x.mean(-1, keepdim=True) if kind == "layer" else x
    expected = norm.weight * centred / (centred.square().mean(-1, keepdim=True) + 0.1).sqrt()
    torch.testing.assert_close(norm(x), expected + norm.bias if kind == "layer" else expected)


def test_only_sums_that_no_norm_has_seen_are_normalised_at_the_end():
    assert isinstance(make_last_norm(6, NormConfig(placement="post")), nn.Identity)
    assert isinstance(make_last_norm(6, NormConfig(placement="pre", kind="rms")), nn.RMSNorm)


def test_layer_norms_may_have_no_bias():
    assert [name for name, _ in make_norm(6, NormConfig(bias=False)).named_parameters()] == ["weight"]


@pytest.mark.parametrize("placement", ["post", "pre", "both"])
@pytest.mark.parametrize("extra", [None, 2])
def test_a_residual_sum_is_normalised_before_or_after_the_sublayer(placement, extra):
    """With a norm of their own for the first positions, if they are learned tokens."""
    residual = Residual(6, NormConfig(placement=placement), 0.0, split=extra is not None)
    for parameter in residual.parameters():
        nn.init.normal_(parameter)
    norms = [] if extra is None else [extra]
    x, matrix = torch.randn(3, 5, 6), torch.randn(6, 6)
    found = residual(x, lambda h: h @ matrix, *norms)
    inside = residual.norm(x, *norms) @ matrix
    expected = {"pre": x + inside, "post": residual.norm(x + x @ matrix, *norms)}
    if placement == "both":
        expected["both"] = x + residual.norm_after(inside, *norms)
    torch.testing.assert_close(found, expected[placement])


def test_learned_tokens_have_a_norm_of_their_own():
    norm: Any = SplitNorm(6, NormConfig())
    nn.init.constant_(norm.extra.weight, 3.0)
    x = torch.randn(2, 5, 6)
    plain = nn.functional.layer_norm(x, (6,))
    torch.testing.assert_close(norm(x, 2), torch.cat([3 * plain[:, :2], plain[:, 2:]], 1))
    torch.testing.assert_close(norm(x, 0), plain)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("gated", [False, True])
def test_a_feed_forward_layer_is_its_formula(activation, gated):
    layer = FeedForward(6, FeedForwardConfig(width=9, activation=activation, gated=gated), 0.0)
    x = torch.randn(2, 6)
    inner = ACTIVATIONS[activation](x @ layer.up.weight.T + layer.up.bias)
    if gated:
        inner = inner * (x @ layer.gate.weight.T + layer.gate.bias)
    torch.testing.assert_close(layer(x), inner @ layer.down.weight.T + layer.down.bias)
    assert {"gate.weight"} <= dict(layer.named_parameters()).keys() if gated else layer.gate is None


def test_a_feed_forward_layer_may_have_no_biases():
    layer = FeedForward(6, FeedForwardConfig(width=9, gated=True, bias=False), 0.0)
    assert all(parameter.dim() == 2 for parameter in layer.parameters())


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("positions", [Learned(8), Rotary()], ids=["learned", "rotary"])
def test_vectors_are_scaled_before_positions_are_added_and_the_sum_is_normalised(scaled, norm, positions):
    embeddings: Any = Embeddings(6, EmbeddingConfig(scaled=scaled, norm=norm), positions, NormConfig(), 0.0)
    x = torch.randn(2, 5, 6)
    expected = x * 6**0.5 if scaled else x
    if isinstance(positions, Learned):
        nn.init.normal_(embeddings.positions.weight)
        expected = expected + embeddings.positions.weight[:5]
    else:
        assert embeddings.positions is None  # attention turns queries and keys instead
    torch.testing.assert_close(embeddings(x), nn.functional.layer_norm(expected, (6,)) if norm else expected)


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


def test_one_document_a_row_is_the_same_as_none():
    layer = PooledAttention(WIDTH, HeadsConfig(count=HEADS), SMALL, 0.0)
    x, real = torch.randn(2, 24, WIDTH), right_padded([24, 8], 24)
    segments = torch.zeros(2, 24, dtype=torch.long).masked_fill(~real, -1)
    plain, packed = layer(x, make_context(real)), layer(x, make_context(real, segments))
    torch.testing.assert_close(packed[real], plain[real], atol=1e-6, rtol=0)


def test_a_document_without_a_window_sees_nothing():
    layer = PooledAttention(WIDTH, HeadsConfig(count=HEADS), SMALL, 0.0)
    segments = torch.tensor([[0, 1, 1, 2, 2, 2, 2, 2]])  # windows in the middle of 0, 4 and 7: of documents 0, 2, 2
    y = layer(torch.randn(1, 8, WIDTH), make_context(None, segments))
    unseeing = (y[0] == layer.out.bias).all(-1)
    assert unseeing.tolist() == [False, True, True, False, False, False, False, False]


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


@pytest.mark.parametrize(
    ("options", "field"),
    [({"stride": 0}, "stride"), ({"stride": 19}, "stride"), ({"padding": 8}, "padding"), ({"layers": 0}, "layers")],
)
def test_bad_windows_are_refused(options, field):
    with pytest.raises(FarspanError, match=f"pooling.{field}"):
        Pooling(**options)
