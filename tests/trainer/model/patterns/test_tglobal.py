"""Tests of local attention, and of TGlobal with its summaries, against a restatement with one full mask."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.model.dense import HEADS, WIDTH, cut, dense, dense_mask, right_padded, saved_by
from trainer.model.context import Context, make_context
from trainer.model.layers.heads import HeadsConfig
from trainer.model.patterns import Local, TGlobal
from trainer.model.patterns.tglobal import TGlobalAttention
from trainer.model.positions import Rotary, rotate


@pytest.mark.parametrize("length", [2, 40])
def test_no_scores_are_saved(length):
    assert saved_by(Local(3), length, 2, 8) == 2 * (2 * 3 + 2)  # the biases


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_with_padding_stays_finite(kind):
    q, k, v = (30 * torch.randn(3, 2, 20, 2, 8)).to(kind).requires_grad_().unbind(0)
    mixed = Local(3).attend(q, k, v, make_context(right_padded([11, 0], 20)), scale=1.0)
    assert mixed.dtype == kind
    for x in (mixed, *torch.autograd.grad(mixed, (q, k, v), torch.ones_like(mixed))):
        assert x.isfinite().all()


def test_dropout_is_the_same_forward_and_backward_and_leaves_the_mean():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 9, 2, 4, dtype=torch.float64).requires_grad_().unbind(0)

    def attend(q, k, v):
        torch.manual_seed(1)
        return Local(2).attend(q, k, v, make_context(), dropout=0.3)

    assert torch.autograd.gradcheck(attend, (q, k, v))
    whole = Local(2).attend(q, k, v, make_context())
    assert not torch.equal(attend(q, k, v), whole)
    mean = torch.stack([Local(2).attend(q, k, v, make_context(), dropout=0.3) for _ in range(1500)]).mean(0)
    torch.testing.assert_close(mean, whole, atol=0.1, rtol=0)


D = HEADS * WIDTH


def make_layer(pattern, scaled=True, dropout=0.0):
    layer: Any = TGlobalAttention(D, HeadsConfig(count=HEADS, scaled=scaled), pattern, dropout, torch.nn.RMSNorm(D))
    torch.nn.init.normal_(layer.side_norm.weight)
    return layer


def members(pattern, documents):
    """The positions that each summary of one row sums, and whose document it is; documents: a list, -1 at padding."""
    length = sum(document >= 0 for document in documents)
    whole, found = length // pattern.block, []
    for number in range(whole):
        stop = length if number == whole - 1 else (number + 1) * pattern.block
        own = documents[number * pattern.block]
        found.append((own, [i for i in range(number * pattern.block, stop) if documents[i] == own]))
    return found


def restated(layer, x, documents, near, far, rotation=None):
    """One row ``(L, d)`` at a time, as the paper says it, position by position."""
    pattern, length, rows = layer.summary, x.shape[1], []
    for row, own in zip(x, documents.tolist(), strict=True):
        blocks = members(pattern, own)
        sums = [row[places].sum(0) for _, places in blocks]
        states = torch.cat([row, layer.side_norm(torch.stack(sums)).to(row.dtype)]) if sums else row
        q, k, v = layer.qkv(states)[None].unflatten(-1, (3, HEADS, -1)).unbind(2)  # (1, L + G, H, D)
        if rotation is not None:
            places = [*range(length), *(number * pattern.block for number in range(len(blocks)))]
            turns = tuple(part[places] for part in rotation)
            q, k = rotate(q, turns), rotate(k, turns)
        mask = torch.zeros(length, len(states), dtype=torch.bool)
        bias = torch.zeros(HEADS, length, len(states), dtype=x.dtype)
        for i in range(length):
            for j in range(length):
                if abs(i - j) <= pattern.radius and own[j] == own[i] >= 0:
                    mask[i, j] = True
                    bias[:, i, j] = near[:, j - i + pattern.radius]
            for number, (document, _) in enumerate(blocks):
                mask[i, length + number] = own[i] == document
                distance = number - min(i // pattern.block, len(blocks) - 1)
                bias[:, i, length + number] = far[:, distance + far.shape[1] // 2]
        factor = 1.0 if layer.scale is None else WIDTH**0.5  # scores of the dense statement are always scaled
        mixed = dense(q[:, :length] * factor, k, v, mask[None], bias)[0]
        rows.append(layer.out(mixed.flatten(1).to(x.dtype)))
    return torch.stack(rows)


@settings(max_examples=40, deadline=None)
@given(
    pattern=st.builds(TGlobal, radius=st.integers(1, 7), block=st.integers(1, 5)),
    length=st.integers(1, 21),
    lengths=st.lists(st.integers(0, 21), min_size=1, max_size=3),
    padded=st.booleans(),
    packed=st.booleans(),
    scaled=st.booleans(),
    turned=st.booleans(),
    seed=st.integers(0, 100),
)
def test_equals_its_restatement_forward_and_backward(pattern, length, lengths, padded, packed, scaled, turned, seed):
    torch.manual_seed(seed)
    real = right_padded([min(n, length) if padded else length for n in lengths], length)
    documents = cut(real, seed) if packed else torch.zeros(real.shape, dtype=torch.int64).masked_fill(~real, -1)
    context = make_context(real if padded else None, documents if packed else None)
    near, far = (torch.randn(HEADS, len(offsets)).requires_grad_() for offsets in pattern.offsets(length))
    rotation = Rotary().rotation(length, WIDTH, real.device) if turned else None
    layer = make_layer(pattern, scaled)
    x = torch.randn(len(real), length, D, requires_grad=True)
    got = layer(x, context._replace(biases=(near, far), rotation=rotation))
    expected = restated(layer, x, documents, near, far, rotation)
    torch.testing.assert_close(got[real], expected[real], atol=2e-5, rtol=1e-5)
    inputs = [x, near, far, *layer.parameters()]
    for gradient in torch.autograd.grad(got.square().sum(), inputs, retain_graph=True):
        assert gradient.isfinite().all()
    upstream = torch.randn_like(got) * real[..., None]
    mine = torch.autograd.grad(got, inputs, upstream, allow_unused=True, materialize_grads=True)
    theirs = torch.autograd.grad(expected, inputs, upstream, allow_unused=True, materialize_grads=True)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_rows_of_nothing_are_zeros_before_the_output_layer():
    mixed = make_layer(TGlobal(3, 4)).mix(torch.randn(2, 10, D), make_context(right_padded([10, 0], 10)))
    assert (mixed[1] == 0).all()
    assert (mixed[0] != 0).all()


def test_padding_changes_nothing_however_large_its_states():
    layer = make_layer(TGlobal(3, 4))
    x = torch.randn(1, 21, D)
    alone = layer(x[:, :14], Context())
    x[:, 14:] = 1e30
    torch.testing.assert_close(layer(x, make_context(right_padded([14], 21)))[:, :14], alone, atol=1e-6, rtol=0)


@pytest.mark.parametrize("length", [1, 3, 8, 23])
def test_operations_are_counted_and_no_scores_saved(length):
    pattern = TGlobal(3, 4)
    pairs = int(dense_mask(pattern, length).sum()) + length * (length // 4)
    assert pattern.flops(length, WIDTH) == 4 * WIDTH * pairs
    saved, known = [], []
    x = torch.randn(1, length + length // 4, 3, HEADS, WIDTH, requires_grad=True)
    q, k, v = x.unbind(2)
    with torch.autograd.graph.saved_tensors_hooks(lambda y: saved.append(y) or y, lambda y: y):
        known += [x, pattern.attend(q[:, :length], k, v, Context())]
    sizes = {y.untyped_storage().data_ptr(): y.untyped_storage().nbytes() // 4 for y in saved}
    rest = sizes.keys() - {y.untyped_storage().data_ptr() for y in known}
    assert sum(sizes[pointer] for pointer in rest) == HEADS * (2 * 3 + 1 + max(1, 2 * (length // 4) - 1))  # the biases


def test_trains_with_dropout_of_attention_weights():
    layer = make_layer(TGlobal(3, 4), dropout=0.5).train()
    x = torch.randn(1, 13, D, requires_grad=True)
    layer(x, Context()).sum().backward()
    assert x.grad.isfinite().all()
    assert not torch.equal(layer(x, Context()), layer.eval()(x, Context()))
