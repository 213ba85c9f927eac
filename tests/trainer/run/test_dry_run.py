from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from corpora.errors import FarspanError, out_of_memory
from objectives.api.examples import IGNORED
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig
from trainer.data.curriculum import StageConfig
from trainer.model.build import build_model
from trainer.model.patterns.block import Block
from trainer.optim.optimizer import build_optimizer
from trainer.parallel.distributed import World
from trainer.run.memory import dry_run
from trainer.run.units.masked_lm import MaskedLMUnit
from trainer.run.units.seq2seq import Seq2SeqUnit

VOCAB = 30


class Passes:
    """Forward and backward, and what was asked for."""

    def __init__(self, recipe) -> None:
        self.model = build_model(recipe.model, VOCAB, seed=0).train()
        self.optimizer = build_optimizer(self.model, recipe.optimizer)
        self.seen: list[tuple[int, list[tuple[int, int, int]]]] = []

    def __call__(self, stage, batches) -> None:
        self.seen.append((stage.first_step, [(*b.source_ids.shape, b.labels.shape[1]) for b in batches]))
        for batch in batches:
            self.model(**batch.inputs).minimised.backward()


def staged():
    recipe = toy_recipe("unused", dropout=0.1)
    short = DataConfig(source_length=8, target_length=4)
    stages = (StageConfig(steps=20, data=short, micro_batch_size=6), StageConfig(steps=40, attention=Block(4)))
    return replace(recipe, stages=stages)


def test_every_stage_passes_its_widest_batches_and_leaves_no_trace():
    recipe = staged()
    passes = Passes(recipe)
    weights = [parameter.detach().clone() for parameter in passes.model.parameters()]
    numbers = torch.get_rng_state()
    dry_run(passes, passes.optimizer, Seq2SeqUnit(recipe), VOCAB, World.alone())
    assert passes.seen == [(0, [(6, 8, 4)]), (20, [(2, 24, 12)] * 2)]  # one micro-batch is the whole batch, or not
    assert torch.equal(torch.get_rng_state(), numbers)
    assert not passes.optimizer.state
    for parameter, before in zip(passes.model.parameters(), weights, strict=True):
        assert parameter.grad is None
        assert torch.equal(parameter, before)


def test_an_encoder_alone_is_asked_about_a_part_of_its_source():
    recipe = toy_recipe("unused")
    batch = MaskedLMUnit(recipe).largest_batch(recipe.curriculum[0], VOCAB)
    assert batch.decoder_ids is None
    assert batch.target_tokens == int((batch.labels != IGNORED).sum()) == 2 * 6
    model = build_model(replace(recipe.model, decoder=None), VOCAB, seed=0)
    assert model(**batch.inputs).minimised.isfinite()


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried 99 bytes"),
        MemoryError(),
    ],
)
def test_out_of_memory_says_what_was_tried_and_what_helps(error):
    recipe = toy_recipe("unused", micro_batch_size=6, activation_checkpointing="none")

    def passes(stage, batches):
        raise error

    optimizer = Passes(recipe).optimizer
    with pytest.raises(FarspanError) as raised:
        dry_run(passes, optimizer, Seq2SeqUnit(recipe), VOCAB, World.alone())
    said = str(raised.value)
    assert "6 x 24 source and 12 target positions" in said
    assert "set a lower run.micro_batch_size, run.activation_checkpointing=layer or shorter" in said
    assert f"--estimate {VOCAB}" in said
    assert raised.value.__cause__ is error


def test_memory_that_is_really_not_there():
    recipe = toy_recipe("unused")

    def passes(stage, batches):
        torch.empty(2**60)

    with pytest.raises(FarspanError, match="out of memory before the first step"):
        dry_run(passes, Passes(recipe).optimizer, Seq2SeqUnit(recipe), VOCAB, World.alone())


def test_other_errors_stay_what_they_are():
    recipe = toy_recipe("unused")

    def passes(stage, batches):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        dry_run(passes, Passes(recipe).optimizer, Seq2SeqUnit(recipe), VOCAB, World.alone())
    assert not out_of_memory(ValueError("out of range"))
