"""Masks and tiles against the dense statement, and uncompiled kernels against the pattern's own way."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.model.dense import HEADS, WIDTH, cut, right_padded, seen_by
from trainer.model.context import make_context
from trainer.model.kernels import flex
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.local import Local
from trainer.model.patterns.merged import Merged
from trainer.model.patterns.span import Span
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window
from trainer.model.positions import Buckets, RelativeBias

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

CPU = torch.device("cpu")
PATTERNS = [BlockGlobal(size=48, global_tokens=3), Window(20), Span(20, 3), Local(9), TGlobal(radius=9, block=4)]
LENGTH = 300  # 3 tiles, the last one partly beyond


def contexts(seed=0, length=LENGTH):
    """By name: whole rows, padded ones with one of nothing, packed ones, both, and with global positions."""
    generator = torch.Generator().manual_seed(seed)
    real = right_padded([length, length // 3, 0], length)
    whole = torch.ones_like(real)
    chosen = torch.rand(real.shape, generator=generator) < 0.02
    return {
        "whole": make_context(),
        "padded": make_context(real),
        "packed": make_context(None, cut(whole, seed)),
        "packed and padded": make_context(real, cut(real, seed)),
        "globals": make_context(real, None, chosen),
        "globals in documents": make_context(real, cut(real, seed), chosen),
    }


def projected(pattern, length=LENGTH):
    """q ``(B, L, H, D)``, k and v with the pattern's summaries."""
    torch.manual_seed(0)
    sides = length // pattern.block if isinstance(pattern, TGlobal) else 0
    q, k, v = torch.randn(3, 3, length + sides, HEADS, WIDTH)
    return q[:, :length], k, v


def cases():
    for pattern in PATTERNS:
        for name in contexts():
            if name.startswith("globals") <= isinstance(pattern, Window):
                yield pytest.param(pattern, name, id=f"{pattern.pattern}-{name}")


@pytest.mark.parametrize(("pattern", "name"), cases())
@pytest.mark.parametrize("length", [1, 17, LENGTH])
def test_uncompiled_kernel_equals_the_patterns_own_way(pattern, name, length):
    context, (q, k, v) = contexts(length=length)[name], projected(pattern, length)
    if pattern.offsets(length):
        tables = [RelativeBias(Buckets(count=8, distance=9), HEADS, both_ways=True) for _ in pattern.offsets(length)]
        for table in tables:
            torch.nn.init.normal_(table.weight)
        biases = tuple(table(part) for table, part in zip(tables, pattern.offsets(length), strict=True))
        context = context._replace(biases=biases)
    with torch.no_grad():
        expected = pattern.attend(q, k, v, context)
        got = flex.attend(pattern, q, k, v, context)
    real = torch.ones(3, length, dtype=torch.bool) if context.padding_mask is None else context.padding_mask
    torch.testing.assert_close(got[real], expected[real], atol=1e-5, rtol=0)
    assert (got[~real] == 0).all()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("length", [1, 17, 256])
def test_uncompiled_kernel_equals_merged_attention_with_grouped_heads(length, padded):
    pattern, sides = Merged(Span(20, 0)), 140
    q, k, v = torch.randn(3, length, 4, WIDTH), *torch.randn(2, 3, length + sides, HEADS, WIDTH)
    context = make_context()._replace(side_mask=right_padded([sides, 9, 0], sides) if padded else None)
    expected, found = pattern.attend(q, k, v, context), flex.attend(pattern, q, k, v, context)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("pattern", "name"), cases())
def test_tiles_that_are_skipped_or_taken_whole_are_so_in_the_mask(pattern, name):
    context, sides = contexts()[name], LENGTH // pattern.block if isinstance(pattern, TGlobal) else 0
    wide, wide_sides = flex.round_up(LENGTH), 128 if sides else 0
    places = flex.places_of(pattern, context, 3, (LENGTH, wide), (sides, wide_sides), CPU)
    mask = flex.block_mask(pattern, places, wide, wide + wide_sides, CPU)
    b, q, k = (torch.arange(size).view(-1, *[1] * after) for size, after in ((3, 2), (wide, 1), (wide + wide_sides, 0)))
    seen = mask.mask_mod(b, torch.tensor(0), q, k).expand(3, -1, -1)
    assert seen.any(2).all()  # no row of nothing for a kernel
    if not sides and context.globals is None:
        real = torch.ones(3, LENGTH, dtype=torch.bool) if context.padding_mask is None else context.padding_mask
        assert torch.equal(seen[:, :LENGTH, :LENGTH][real], seen_by(pattern, real, context.segments)[real])
    tiles = seen.unflatten(2, (-1, flex.TILE)).unflatten(1, (-1, flex.TILE))  # (B, Q, TILE, K, TILE)
    some, whole = tiles.any(4).any(2), tiles.all(4).all(2)
    partly, fully = listed(mask.kv_num_blocks, mask.kv_indices), listed(mask.full_kv_num_blocks, mask.full_kv_indices)
    assert not (partly & fully).any()
    assert (partly | fully | ~some).all()
    assert (whole | ~fully).all()
    if name == "padded" and not sides:
        assert (partly | fully)[2].sum() == wide // flex.TILE  # a row of nothing: each tile of queries sees itself


def listed(counts, indices):
    """``(B, Q, K)`` bool."""
    ahead = torch.arange(indices.shape[-1]) < counts[..., None]
    tiles = torch.zeros(indices.shape, dtype=torch.bool).scatter(-1, indices.long(), ahead)
    return tiles[:, 0].expand(3, -1, -1)


@settings(max_examples=50)
@given(length=st.integers(1, 100_000))
def test_lengths_are_rounded_up_to_few(length):
    wide = flex.round_up(length)
    assert length <= wide
    assert wide % flex.TILE == 0
    assert wide < length + max(flex.TILE, 0.25 * (length + flex.TILE))
    assert flex.round_up(wide) == wide


def test_an_octave_of_lengths_shares_four_kernels():
    assert len({flex.round_up(length) for length in range(8193, 16385)}) == 4
