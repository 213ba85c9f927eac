"""Which way is taken, and that a plan is made once a batch."""

from __future__ import annotations

import torch

from tests.trainer.model.dense import HEADS, WIDTH, cut, right_padded
from trainer.model.backends.choose import attend_across, attend_within, fused, plan_within
from trainer.model.context import Context, make_context
from trainer.model.patterns.block import Block

REAL = right_padded([10, 3], 10)


def test_a_cpu_takes_the_patterns_own_way():
    q, k, v = torch.randn(3, 2, 10, HEADS, WIDTH, dtype=torch.bfloat16)
    context = make_context(REAL)
    assert not fused(q, 0.0)
    assert torch.equal(attend_within(Block(4), q, k, v, context), Block(4).attend(q, k, v, context))
    assert attend_across(q, k, v, Context(), Context(REAL)) is None


def test_all_layers_share_the_plan_of_a_batch():
    q = torch.randn(2, 10, HEADS, WIDTH)
    segments = cut(REAL, 0)
    plan = plan_within(Block(4), q, make_context(REAL, segments))
    assert plan is not None
    assert plan_within(Block(4), q, make_context(REAL, segments)) is plan
    assert plan_within(Block(8), q, make_context(REAL, segments)) is not plan
    assert plan_within(Block(4), q, make_context(REAL, segments.clone())) is not plan
    assert plan_within(Block(4), q, make_context(REAL.clone(), segments)) is not plan


def test_whole_rows_and_relative_positions_need_no_plan():
    q = torch.randn(2, 10, HEADS, WIDTH)
    assert plan_within(Block(4), q, make_context()) is None
    assert plan_within(Block(4), q, make_context(REAL)._replace(biases=(torch.zeros(HEADS, 4, 4),))) is None
