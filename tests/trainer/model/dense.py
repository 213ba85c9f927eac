"""Patterns said the plain way, as attention under the whole mask in float64: what their tests compare with."""

import torch
from torch import Tensor

from trainer.model.context import make_context
from trainer.model.pattern import Pattern
from trainer.model.patterns import (
    AnyPattern,
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
from trainer.model.positions import Buckets, RelativeBias

HEADS, WIDTH = 2, 8  # H and D

PATTERNS: list[AnyPattern] = [  # one of each kind
    Full(),
    Block(8),
    Overlap(8),
    BlockGlobal(8, 2),
    Staggered(8, 3),
    Local(4),
    TGlobal(4, 3),
    Window(6),
    Span(2, 3),
    Layered(2, 3, 2),
    BigBird(3, 1),
]


def dense(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None = None) -> Tensor:
    """Attention of ``(B, L, H, D)`` under a ``(B, L, L)`` bool mask and a ``(H, L, L)`` bias, in float64; zeros where
    nothing is seen."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) / q.shape[-1] ** 0.5
    if bias is not None:
        scores = scores + bias.double()
    # a softmax over nothing is NaN, and so are its gradients: such rows see everything, and are then set to zero
    empty = ~mask.any(-1, keepdim=True)
    weights = scores.masked_fill(~(mask | empty)[:, None], -torch.inf).softmax(-1).masked_fill(empty[:, None], 0.0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v.double())


def dense_mask(pattern: Pattern, length: int) -> Tensor:
    """``(G + L, G + L)`` bool, as the pattern says of itself."""
    places = torch.arange(pattern.extra_tokens + length)
    return pattern.mask_mod(places[:, None], places, length)


def right_padded(lengths: list[int], width: int) -> Tensor:
    """``(B, width)`` bool, False at padding."""
    return torch.arange(width) < torch.tensor(lengths)[:, None]


def cut(real: Tensor, seed: int) -> Tensor:
    """Documents drawn for ``(B, L)`` real positions: int64, 0, 1, ... from the left and -1 at padding."""
    starts = torch.rand(real.shape, generator=torch.Generator().manual_seed(seed)) < 0.2
    starts[:, :1] = False
    return starts.long().cumsum(1).masked_fill(~real, -1)


def seen_by(pattern: Pattern, real: Tensor, segments: Tensor | None = None) -> Tensor:
    """``(B, N, N)`` bool: the dense mask, without padding keys and pairs of different documents.

    N is ``G + L``, or ``documents * G + L`` with segments: one set of the pattern's own tokens a document.
    """
    length, extra = real.shape[1], pattern.extra_tokens
    documents = 1 if segments is None else max(1, int(segments.max()) + 1)
    places = torch.cat([torch.arange(extra).repeat(documents), extra + torch.arange(length)])
    keys = torch.cat([torch.ones(len(real), documents * extra, dtype=torch.bool), real], 1)
    own = [int(row.sum()) for row in real]
    seen = torch.stack([pattern.mask_mod(places[:, None], places, max(1, row)) for row in own]) & keys[:, None]
    if segments is None:
        return seen
    document = torch.cat([torch.arange(documents).repeat_interleave(extra).expand(len(real), -1), segments], 1)
    return seen & (document[:, :, None] == document[:, None])


def assert_equals_dense(
    pattern: Pattern, length: int, lengths: list[int], seed: int, segments: Tensor | None = None, relative: bool = False
) -> None:
    """``pattern.attend`` equals its dense statement forward and backward, and gives zeros where nothing is seen.

    What it gives at padding that sees something is free, as long as it is finite.

    Args:
        length: L.
        lengths: real positions of every row, right-padded; those beyond ``length`` mean a whole row.
        segments: ``(B, L)``, as ``cut`` draws them; their padding is made -1 here.
        relative: add learned biases of relative positions, for patterns with one table and no tokens of their own.
    """
    torch.manual_seed(seed)
    real = right_padded([min(n, length) for n in lengths], length)
    if segments is not None:
        segments = segments.masked_fill(~real, -1)
    context = make_context(real, segments)
    seen = seen_by(pattern, real, segments)
    bias, inputs = None, list[Tensor]()
    if relative:
        table = RelativeBias(Buckets(count=8, distance=9), HEADS, both_ways=True)
        torch.nn.init.normal_(table.weight)
        (offsets,) = pattern.offsets(length)
        context = context._replace(biases=(table(offsets),))
        places = torch.arange(length)
        bias = table(places - places[:, None])  # (H, L, L)
        inputs = [table.weight]
    q, k, v = torch.randn(3, len(real), seen.shape[1], HEADS, WIDTH).requires_grad_().unbind(0)
    got = pattern.attend(q, k, v, context)
    expected = dense(q, k, v, seen, bias)
    known = torch.cat([torch.ones(len(real), seen.shape[1] - length, dtype=torch.bool), real], 1)
    torch.testing.assert_close(got[known], expected[known].float(), atol=1e-5, rtol=0)
    assert got.isfinite().all()
    assert (got[~seen.any(2)] == 0).all()
    upstream = torch.randn_like(got)
    inputs = [q, k, v, *inputs]
    for gradient in torch.autograd.grad(got, inputs, upstream, retain_graph=True):
        assert gradient.isfinite().all()
    upstream = upstream * known[..., None, None]
    mine = torch.autograd.grad(got, inputs, upstream)
    for one, other in zip(mine, torch.autograd.grad(expected, inputs, upstream.double()), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def saved_by(pattern: Pattern, length: int, heads: int, width: int) -> int:
    """Float32 numbers that ``attend`` saves for the backward pass besides q, k, v and its result, measured.

    Args:
        width: H * D.
    """
    torch.manual_seed(0)
    projected = torch.randn(1, pattern.extra_tokens + length, 3, heads, width // heads, requires_grad=True)
    saved = []  # holds the tensors, so that no storage is given away and counted as one with a later one

    def pack(x: Tensor) -> Tensor:
        saved.append(x)
        return x

    q, k, v = projected.unbind(2)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = pattern.attend(q, k, v, make_context())
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in saved}
    for tensor in (result, projected):
        storages.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(storages.values()) // 4
