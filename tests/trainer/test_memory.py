"""The published shape fits a machine without an accelerator."""

from __future__ import annotations

import multiprocessing
import resource
import sys

import pytest
import torch

from trainer.model.build import build_model
from trainer.optimizer import build_optimizer
from trainer.parallel import apply_activation_checkpointing
from trainer.recipe import load_recipe

VOCAB = 50_265 + 256


def peak_of_a_step(mode: str) -> float:
    """GiB at the peak of forward, backward and Adam on one sequence of 16,384 in and 1,024 out."""
    config = load_recipe("bart_ls_base").model
    model = build_model(config, VOCAB, seed=0)
    apply_activation_checkpointing(model, mode)
    optimizer = build_optimizer(model, load_recipe("bart_ls_base").optimizer)
    source, target = torch.randint(0, VOCAB, (1, 16_384)), torch.randint(0, VOCAB, (1, 1_024))
    (model(source, target, target).minimised / 1024).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss counts bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "limit"), [("layer", 5), ("none", 14)])
def test_a_step_of_bart_ls_base_stays_below(mode, limit):
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # a process of its own has a peak of its own
        peak = pool.apply(peak_of_a_step, (mode,))
    print(f"peak with activation checkpointing {mode!r}: {peak:.1f} GiB")
    assert peak < limit
