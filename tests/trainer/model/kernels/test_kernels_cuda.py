"""Every backend against the pattern's own way, forward and backward, on a device: bfloat16 against float32."""

import pytest
import torch

from tests.trainer.model.dense import cut, right_padded
from trainer.model.context import make_context
from trainer.model.kernels import choose
from trainer.model.kernels.choose import attend_within, can_fuse
from trainer.model.layers.attention import Causal, CrossAttention
from trainer.model.layers.heads import HeadsConfig
from trainer.model.patterns import Block, BlockGlobal, Full, Local, Overlap, Staggered, TGlobal, Window
from trainer.model.positions import Buckets, RelativeBias

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

HEADS, WIDTH, LENGTH = 2, 64, 300
PATTERNS = [
    Full(),
    Causal(),
    Block(64),
    Overlap(64),
    Staggered(size=64, global_tokens=8),
    Staggered(size=64, global_tokens=8, shifted=True),
    BlockGlobal(size=64, global_tokens=8),
    Window(64),
    Local(31),
    TGlobal(radius=31, block=16),
]


def contexts():
    real = right_padded([LENGTH, 100, 1, 0], LENGTH).cuda()
    documents = cut(real.cpu(), 0).cuda()
    return {"whole": make_context(), "padded": make_context(real), "packed": make_context(real, documents)}


@pytest.mark.parametrize("name", ["whole", "padded", "packed"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern)
def test_the_fast_way_equals_the_patterns_own(pattern, name, monkeypatch):
    if isinstance(pattern, Causal) and name == "packed":
        pytest.skip("the decoder packs no documents")
    torch.manual_seed(0)
    context = contexts()[name]
    sides = LENGTH // pattern.block if isinstance(pattern, TGlobal) else 0
    extra = context.most_documents * pattern.extra_tokens
    x = torch.randn(4, extra + LENGTH + sides, 3, HEADS, WIDTH, device="cuda")
    tables = [RelativeBias(Buckets(), HEADS, both_ways=True).cuda() for _ in pattern.offsets(LENGTH)]
    if not isinstance(pattern, Local | TGlobal):
        tables = []  # the others' fast ways know no relative positions
    for table in tables:
        torch.nn.init.normal_(table.weight)
    known = (
        torch.ones(4, LENGTH, dtype=torch.bool, device="cuda") if context.padding_mask is None else context.padding_mask
    )
    known = torch.cat([torch.ones(4, extra, dtype=torch.bool, device="cuda"), known], 1)
    upstream = torch.randn(4, extra + LENGTH, HEADS, WIDTH, device="cuda") * known[..., None, None]

    def run(x):
        x = x.detach().requires_grad_()
        q, k, v = x.unbind(2)
        offsets = pattern.offsets(LENGTH)[: len(tables)]
        biases = tuple(table(part.cuda()) for table, part in zip(tables, offsets, strict=True))
        mixed = attend_within(pattern, q[:, : extra + LENGTH], k, v, context._replace(biases=biases))
        weights = [table.weight for table in tables]
        return mixed[known], *torch.autograd.grad(mixed, [x, *weights], upstream.to(mixed.dtype))

    assert can_fuse(x.bfloat16()[:, :, 0], 0.0)
    got = run(x.bfloat16())
    monkeypatch.setattr(choose, "can_fuse", lambda *_: False)
    for one, other in zip(got, run(x.bfloat16().float()), strict=True):
        assert one.isfinite().all()
        assert (one.float() - other).norm() <= 0.02 * other.norm()


def test_cross_attention_leaves_padding_out(monkeypatch):
    torch.manual_seed(0)
    layer = CrossAttention(128, HeadsConfig(count=2), 0.0).cuda()
    x, memory = torch.randn(3, 7, 128, device="cuda"), torch.randn(3, 50, 128, device="cuda", requires_grad=True)
    real = right_padded([50, 9, 0], 50).cuda()
    upstream = torch.randn(3, 7, 128, device="cuda")

    def run():
        y = layer(x, memory, keys=make_context(real))
        return y.float(), torch.autograd.grad(y, memory, upstream.to(y.dtype))[0].float()

    with torch.autocast("cuda", torch.bfloat16):
        got = run()
    monkeypatch.setattr(choose, "can_fuse", lambda *_: False)
    for one, other in zip(got, run(), strict=True):
        assert (one - other).norm() <= 0.02 * other.norm()
    assert (got[1][~real] == 0).all()
