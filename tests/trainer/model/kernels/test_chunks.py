"""The size of chunks does not affect the result."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.model.dense import cut, right_padded
from trainer.model.context import make_context
from trainer.model.kernels import chunks
from trainer.model.kernels.chunks import Inputs
from trainer.model.patterns.tglobal import TGlobal

LENGTH, HEADS, WIDTH = 60, 2, 4
PATTERN = TGlobal(radius=5, block=4)


def learned(packed):
    torch.manual_seed(0)
    real = right_padded([LENGTH, 33], LENGTH)
    sides = LENGTH // PATTERN.block
    x = torch.randn(2, LENGTH + sides, 3, HEADS, WIDTH, dtype=torch.float64, requires_grad=True)
    near, far = (torch.randn(HEADS, len(part), dtype=torch.float64) for part in PATTERN.offsets(LENGTH))
    biases = tuple(part.requires_grad_() for part in (near, far))
    context = make_context(real, cut(real, 3) if packed else None)._replace(biases=biases)
    q, k, v = x.unbind(2)
    mixed = PATTERN.attend(q[:, :LENGTH], k, v, context)
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
            tensors = [torch.empty(shape, device=device) for shape in shapes]
            sizes[device] = Inputs(*tensors, None, None, None, 16, 1.0, 0.0).size
    assert sizes == {"cpu": 128, "cuda": 1024}
