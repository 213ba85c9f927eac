"""Tests of estimates of memory, and of the dry run."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from corpora.errors import FarspanError, out_of_memory
from tests.trainer.toy import ToySource, toy_recipe
from trainer.data.config import DataConfig
from trainer.data.curriculum import StageConfig
from trainer.model.build import build_model
from trainer.model.config import GeneratorConfig
from trainer.model.patterns.block import Block
from trainer.optim.optimizer import OptimizerConfig, build_optimizer
from trainer.parallel.distributed import World
from trainer.recipe import load_recipe
from trainer.run.memory import Setting, dry_run, step_memory
from trainer.run.train import train
from trainer.run.units.single import Seq2SeqUnit

VOCAB = 50_265 + 256

GIB = 2**30


@pytest.mark.parametrize("name", ["adamw", "adam", "adafactor", "muon"])
def test_state_is_what_the_optimiser_makes(name):
    recipe = toy_recipe("unused")
    recipe = replace(recipe, optimizer=replace(recipe.optimizer, name=name))
    model = build_model(recipe.model, 30, seed=0)
    optimizer = build_optimizer(model, OptimizerConfig(name=name))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    made = sum(x.nbytes for state in optimizer.state.values() for x in state.values() if x.dim())
    assert step_memory(recipe, 30).optimizer == made
    assert step_memory(recipe, 30).gradients == 4 * sum(parameter.numel() for parameter in model.parameters())


def test_shards_divide_what_copies_do_not():
    recipe = load_recipe("bart_ls_base")
    copies, shards, both = (
        step_memory(recipe, VOCAB, Setting(mode=mode, world_size=16, local_size=8))
        for mode in ("ddp", "fsdp", "hybrid")
    )
    assert copies == step_memory(recipe, VOCAB, Setting())
    assert shards.optimizer == copies.optimizer // 16
    assert both.optimizer == copies.optimizer // 8
    assert shards.weights < copies.weights
    # Batches of 256 on 16 devices are several micro-batches: gradients wait for the last of them.
    assert shards.gradients == copies.gradients
    wide = load_recipe("bart_ls_base", ["run.micro_batch_size=16"])
    single = step_memory(wide, VOCAB, Setting(mode="fsdp", world_size=16))
    assert single.gradients < copies.gradients
    # Unless they are reduced after each.
    at_once = load_recipe("bart_ls_base", ["parallel.reduce=micro_batch"])
    each = step_memory(at_once, VOCAB, Setting(mode="fsdp", world_size=16))
    assert each.gradients == single.gradients
    assert replace(each, gradients=0) == replace(shards, gradients=0)


def test_published_shape_keeps_what_was_counted_by_hand():
    """BART-LS large, 16,384 and 1,024 positions, all in bfloat16 without dropout: about 8.1 GiB a sequence."""
    recipe = load_recipe("bart_ls_large")
    recipe = replace(recipe, model=replace(recipe.model, dropout=0.0))
    settings = [Setting(mode="fsdp", world_size=8, checkpointing=mode) for mode in ("none", "layer")]
    whole, again = (step_memory(recipe, VOCAB, setting).activations / GIB for setting in settings)
    assert whole == pytest.approx(8.1, rel=0.1)
    # Inputs of 12 + 12 layers and of the norms below them, the encoder's output and the decoder's.
    states = 12 * 16_384 + 12 * 1_024 + 16_384 + 1_024 + 16_384 + 1_024
    assert again == pytest.approx(states * 1_024 * 2 / GIB, rel=0.01)


def test_the_longest_stage_decides():
    recipe = load_recipe("tiny")
    short = replace(recipe.data, source_length=512)
    run = replace(recipe.run, steps=20)
    staged = replace(recipe, run=run, stages=(StageConfig(steps=10, data=short), StageConfig(steps=10)))
    assert step_memory(staged, VOCAB) == step_memory(recipe, VOCAB)
    assert step_memory(replace(recipe, data=short), VOCAB).total < step_memory(recipe, VOCAB).total


def test_a_generator_is_counted_too():
    """Its weights, gradients and state are its own; both forward passes come before the way back."""
    alone, joint = load_recipe("bart_ls_base"), load_recipe("bart_ls_joint")
    generator = load_recipe("bart_ls_generator", ["model.dropout=0.0"])  # as beside the model
    for setting in (Setting(), Setting(mode="fsdp", world_size=8)):
        model, beside, both = (step_memory(recipe, VOCAB, setting) for recipe in (alone, generator, joint))
        for part in ("gradients", "optimizer"):
            assert getattr(both, part) == getattr(model, part) + getattr(beside, part)
        assert model.weights < both.weights <= model.weights + beside.weights
        # a third of its source has labels, where alone it is a quarter
        head = (16_384 // 3 - 16_384 // 4) * 768 * 4 * 2
        assert both.activations == pytest.approx(model.activations + beside.activations + head, rel=1e-3)
        assert both.working == max(model.working, beside.working)


def test_the_generator_of_a_run_has_its_sizes(tmp_path):
    recipe = toy_recipe(tmp_path)
    train(replace(recipe, model=replace(recipe.model, decoder=None)), source=ToySource(encoder_only=True), until=1)
    beside = replace(recipe, generator=GeneratorConfig(initial=str(tmp_path)))
    drawn = GeneratorConfig(model=replace(recipe.model, decoder=None))
    assert step_memory(beside, VOCAB) == step_memory(replace(recipe, generator=drawn), VOCAB)
    missing = replace(recipe, generator=GeneratorConfig(initial=str(tmp_path / "none")))
    with pytest.raises(FarspanError, match="no readable checkpoint"):
        step_memory(missing, VOCAB)


def measured(*arguments: str) -> dict[str, tuple[int, int]]:
    """Bytes at the ``peak`` of a step and of its ``activations``, each measured and estimated."""
    # What is freed goes back to the system at once, so that the peak is of what is in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 16), "MALLOC_TRIM_THRESHOLD_": str(1 << 16)}
    command = [sys.executable, "-m", "tests.trainer.run.peak_of_step", *arguments]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=1500, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SMALL = ["model.width=256", "model.heads.count=4", "model.feed_forward.width=1024", "data.source_length=2048",
         "data.target_length=256", "data.target_multiple=64", "run.micro_batch_size=1", "run.batch_size=2"]  # fmt: skip

GENERATOR = ["generator.model.width=256", "generator.model.heads.count=4", "generator.model.feed_forward.width=1024"]

linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="asks Linux for the peak")
slow = pytest.mark.slow


@linux
@pytest.mark.parametrize(
    ("checkpointing", "loss", "tolerance"),
    [
        pytest.param("none", [], 0.12, marks=slow),
        ("layer", [], 0.12),
        *(pytest.param(checkpointing, ["loss.r3f={}"], 0.15, marks=slow) for checkpointing in ("none", "layer")),
    ],
)
def test_the_estimate_is_what_is_measured(checkpointing, loss, tolerance):
    """Nothing is missing from what is kept: the loss, whose logits are computed again, leaves none behind."""
    found = measured("tiny", "4000", *SMALL, f"run.activation_checkpointing={checkpointing}", *loss)
    for part, rel in (("peak", tolerance), ("activations", 0.05)):
        real, estimate = found[part]
        assert estimate == pytest.approx(real, rel=rel)


def test_the_second_pass_of_r3f_is_counted():
    plain, twice = (step_memory(load_recipe("tiny", settings), VOCAB) for settings in ([], ["loss.r3f={}"]))
    assert twice.activations == pytest.approx(2 * plain.activations, rel=1e-6)
    assert (twice.weights, twice.gradients, twice.optimizer) == (plain.weights, plain.gradients, plain.optimizer)
    assert twice.working > plain.working


@linux
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("checkpointing", ["none", "selective", "layer"])
@pytest.mark.parametrize(
    "recipe", ["tiny", "tiny_longt5_tglobal", "tiny_pegasus_x", "tiny_led", "tiny_joint", "tiny_t5gemma2"]
)
def test_estimates_are_measured_peaks(recipe, checkpointing, precision):
    changes = [f"run.activation_checkpointing={checkpointing}", f"run.precision={precision}"]
    changes += GENERATOR if recipe == "tiny_joint" else []
    peak, estimate = measured(recipe, "4000", *SMALL, *changes)["peak"]
    assert estimate == pytest.approx(peak, rel=0.2)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["layer", "none"])
def test_a_step_of_bart_ls_base_is_as_large_as_said(mode):
    """The published shape fits a machine without an accelerator."""
    changes = [f"run.activation_checkpointing={mode}", "run.precision=fp32", "run.batch_size=1"]
    peak, estimate = measured("bart_ls_base", str(VOCAB), *changes)["peak"]
    assert peak < (5 if mode == "layer" else 14) * GIB
    assert estimate == pytest.approx(peak, rel=0.2)


DRY_RUN_VOCAB = 30


class Passes:
    """Forward and backward, and what was asked for."""

    def __init__(self, recipe) -> None:
        self.model = build_model(recipe.model, DRY_RUN_VOCAB, seed=0).train()
        self.optimizer = build_optimizer(self.model, recipe.optimizer)
        self.seen: list[tuple[int, list[tuple[int, int, int]]]] = []

    def __call__(self, stage, batches) -> None:
        self.seen.append((stage.first_step, [(*b.source_ids.shape, b.labels.shape[1]) for b in batches]))
        for batch in batches:
            self.model(**batch.inputs).minimised.backward()


def pass_widest(recipe, passes, optimizer=None) -> None:
    dry_run(passes, optimizer or Passes(recipe).optimizer, Seq2SeqUnit(recipe), DRY_RUN_VOCAB, World.alone())


def test_every_stage_passes_its_widest_batches_and_leaves_no_trace():
    short = DataConfig(source_length=8, target_length=4)
    stages = (StageConfig(steps=20, data=short, micro_batch_size=6), StageConfig(steps=40, attention=Block(4)))
    recipe = replace(toy_recipe("unused", dropout=0.1), stages=stages)
    passes = Passes(recipe)
    weights = [parameter.detach().clone() for parameter in passes.model.parameters()]
    numbers = torch.get_rng_state()
    pass_widest(recipe, passes, passes.optimizer)
    assert passes.seen == [(0, [(6, 8, 4)]), (20, [(2, 24, 12)] * 2)]  # one micro-batch is the whole batch, or not
    assert torch.equal(torch.get_rng_state(), numbers)
    assert not passes.optimizer.state
    for parameter, before in zip(passes.model.parameters(), weights, strict=True):
        assert parameter.grad is None
        assert torch.equal(parameter, before)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried 99 bytes"),
        MemoryError(),
    ],
)
def test_out_of_memory_says_what_was_tried_and_what_helps(error):
    with pytest.raises(FarspanError) as raised:
        pass_widest(toy_recipe("unused", micro_batch_size=6, activation_checkpointing="none"), Mock(side_effect=error))
    said = str(raised.value)
    assert "6 x 24 source and 12 target positions" in said
    assert "set a lower run.micro_batch_size, run.activation_checkpointing=layer or shorter" in said
    assert f"--estimate {DRY_RUN_VOCAB}" in said
    assert raised.value.__cause__ is error


def test_memory_that_is_really_not_there():
    with pytest.raises(FarspanError, match="out of memory before the first step"):
        pass_widest(toy_recipe("unused"), lambda *_: torch.empty(2**60))


def test_other_errors_stay_what_they_are():
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        pass_widest(toy_recipe("unused"), Mock(side_effect=error))
    assert not out_of_memory(ValueError("out of range"))
