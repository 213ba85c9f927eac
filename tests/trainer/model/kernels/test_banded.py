"""Tests of attention in bands, in chunks, and in tiles of a mask."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.model.dense import HEADS, WIDTH, cut, dense, right_padded, seen_by
from trainer.model.context import make_context
from trainer.model.kernels import chunks, flex
from trainer.model.kernels.banded import attend_banded, banded_attention
from trainer.model.kernels.chunks import NOBODY, Inputs
from trainer.model.patterns import BlockGlobal, Local, Span, TGlobal, Window
from trainer.model.patterns.merged import Merged
from trainer.model.positions import Buckets, RelativeBias


def test_the_operator_is_one_that_a_compiler_can_take():
    q, k, v = torch.randn(2, 9, HEADS, WIDTH), *torch.randn(2, 2, 11, HEADS, WIDTH)
    inputs = [x.requires_grad_() for x in (q, k, v, torch.randn(HEADS, 7), torch.randn(HEADS, 3))]
    torch.library.opcheck(banded_attention, (*inputs, None, None, None, 4, 1.0, 0.0))
    documents = torch.zeros(2, 11, dtype=torch.int64)
    torch.library.opcheck(banded_attention, (*inputs, documents[:, :9], documents, torch.tensor(5), 4, 1.0, 0.3))


@settings(max_examples=25, deadline=None)
@given(
    radius=st.integers(1, 6),
    sides=st.booleans(),
    lengths=st.lists(st.integers(0, 17), min_size=1, max_size=3),
    packed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_band_and_side_keys_are_attended_to_as_under_their_whole_mask(radius, sides, lengths, packed, seed):
    torch.manual_seed(seed)
    length, block = 17, 5
    count = length // block if sides else 0
    real = right_padded(lengths, length)
    documents = cut(real, seed) if packed else torch.zeros(real.shape, dtype=torch.int64)
    owners = torch.randint(-1, 2, (len(lengths), count)) if sides else None
    q = torch.randn(len(lengths), length, HEADS, WIDTH, requires_grad=True)
    k, v = torch.randn(2, len(lengths), length + count, HEADS, WIDTH).requires_grad_().unbind(0)
    near, far = torch.randn(HEADS, 2 * radius + 1), torch.randn(HEADS, max(1, 2 * count - 1))
    biases = (near.requires_grad_(), *([far.requires_grad_()] if sides else []))
    context = make_context(real, documents if packed else None)._replace(biases=biases)
    known = (block, owners.masked_fill(owners < 0, NOBODY)) if sides else ()
    found = attend_banded(q, k, v, context, radius, *known)

    places = torch.arange(length)
    offset = places - places[:, None]  # (L, L)
    mask = (offset.abs() <= radius) & real[:, None] & (documents[:, :, None] == documents[:, None])
    bias = near[:, offset.clamp(-radius, radius) + radius]
    if sides:
        mask = torch.cat([mask, documents[:, :, None] == owners[:, None].masked_fill(owners[:, None] < 0, -9)], 2)
        unused = torch.nn.functional.pad(owners, (0, 1), value=-1)[:, places // block] < 0  # (B, L)
        own = (places // block - unused.long()).clamp(min=0)  # queries of an unused block belong to the one before
        distance = torch.arange(count) - own[..., None]  # (B, L, G)
        bias = torch.cat([bias.expand(len(own), -1, -1, -1), far[:, distance + count - 1].transpose(0, 1)], 3)
    expected = dense(q, k, v, mask, bias)
    torch.testing.assert_close(found[real], expected[real].float(), atol=1e-5, rtol=0)
    upstream = torch.randn_like(found) * real[..., None, None]
    inputs = (q, k, v, *biases)
    mine = torch.autograd.grad(found, inputs, upstream)
    theirs = torch.autograd.grad(expected, inputs, upstream.double(), materialize_grads=True, allow_unused=True)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other.float(), atol=1e-5, rtol=1e-5)


def test_dropout_is_drawn_anew_by_the_seed_of_torch():
    q, k, v = torch.randn(3, 1, 9, HEADS, WIDTH)
    torch.manual_seed(3)
    one, other = (attend_banded(q, k, v, make_context(), 4, dropout=0.5) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(attend_banded(q, k, v, make_context(), 4, dropout=0.5), one)
    assert not torch.equal(one, other)


CHUNKED, CHUNK_HEADS, CHUNK_WIDTH = 60, 2, 4

PATTERN = TGlobal(radius=5, block=4)


def learned(packed):
    torch.manual_seed(0)
    real = right_padded([CHUNKED, 33], CHUNKED)
    sides = CHUNKED // PATTERN.block
    x = torch.randn(2, CHUNKED + sides, 3, CHUNK_HEADS, CHUNK_WIDTH, dtype=torch.float64, requires_grad=True)
    near, far = (torch.randn(CHUNK_HEADS, len(part), dtype=torch.float64) for part in PATTERN.offsets(CHUNKED))
    biases = tuple(part.requires_grad_() for part in (near, far))
    context = make_context(real, cut(real, 3) if packed else None)._replace(biases=biases)
    q, k, v = x.unbind(2)
    mixed = PATTERN.attend(q[:, :CHUNKED], k, v, context)
    return mixed.detach(), *torch.autograd.grad(mixed.square().sum(), [x, *biases])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("least", [17, 1024])
def test_larger_chunks_give_the_same(monkeypatch, least, packed):
    expected = learned(packed)
    monkeypatch.setattr(chunks, "LEAST", {"cpu": least})
    torch.testing.assert_close(learned(packed), expected)


def test_a_gpu_gets_few_of_them():
    """Windows of 127, as LongT5 has them: as many loops as chunks, for every layer."""
    shapes = ((1, 4096, 1, 1), (1, 4352, 1, 1), (1, 4352, 1, 1), (1, 255), (1, 511))
    sizes = {}
    for device in ("cpu", "cuda"):
        with torch._subclasses.FakeTensorMode():
            q, k, v, near, far = (torch.empty(shape, device=device) for shape in shapes)
            sizes[device] = Inputs(q, k, v, near, far, None, None, None, 16, 1.0, 0.0).size
    assert sizes == {"cpu": 128, "cuda": 1024}


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
@pytest.mark.parametrize("sides", [128, 140])  # whole tiles, and others
@pytest.mark.parametrize("length", [1, 17, 256])
def test_uncompiled_kernel_equals_merged_attention_with_grouped_heads(length, sides, padded):
    pattern = Merged(Span(20, 0))
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
