"""The memory of a training step: an estimate without running it, and a dry run of the largest batch.

The estimate is for the peak in a step of several micro-batches, when the last of them begins its backward pass:
weights, gradients, optimiser state, saved activations and working memory. It does not include libraries, the CUDA
context or fragmentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from corpora.errors import FarspanError, out_of_memory
from trainer.data.batch import Batch
from trainer.data.curriculum import Stage
from trainer.model.build import make_model
from trainer.model.config import ModelConfig
from trainer.model.layers.heads import projections_in
from trainer.model.loss import CHUNK
from trainer.optim.adafactor import Adafactor
from trainer.optim.muon import hidden_matrices
from trainer.options import Checkpointing, ParallelMode
from trainer.parallel.device import memory_capacity
from trainer.parallel.distributed import World
from trainer.parallel.wrapping import ParallelConfig, layers_of
from trainer.recipe import Recipe
from trainer.run.activations import Numbers, activations
from trainer.run.units import unit_type
from trainer.run.units.unit import TrainUnit

_LEVELS: tuple[Checkpointing, ...] = ("none", "selective", "layer")
_ROWS = 1_000_003  # of the token table of a model whose parameters are counted; no other size of a model


@dataclass(frozen=True)
class Memory:
    """Bytes of one process."""

    weights: int  # in float32, and gathered or cast copies of them
    gradients: int  # kept between micro-batches
    optimizer: int  # its state
    activations: int  # saved for one micro-batch, without logits, which the loss recomputes
    working: int  # temporary, at the peak

    @property
    def total(self) -> int:
        return sum(astuple(self))


@dataclass(frozen=True)
class Setting:
    """Settings that affect the memory of a recipe's step and nothing else; None stands for the recipe's value."""

    checkpointing: Checkpointing | None = None
    mode: ParallelMode | None = None
    world_size: int = 1  # processes, one per device
    local_size: int = 8  # processes on each machine
    device: str = "cuda"  # or cpu


def step_memory(recipe: Recipe, vocab_size: int, setting: Setting | None = None) -> Memory:
    """Estimate the memory of the largest step of all stages, with sequences of maximum length."""
    setting = setting or Setting()
    memories = (_stage_memory(recipe, stage, setting, vocab_size) for stage in recipe.curriculum)
    return max(memories, key=lambda memory: memory.total)


_MODES: tuple[tuple[int, ParallelMode], ...] = ((1, "ddp"), (8, "ddp"), (8, "fsdp"))
"""Processes and parallel mode of each part of the table."""


def memory_table(recipe: Recipe, vocab_size: int) -> Iterator[str]:
    """Yield the lines of a table of the recipe's step on CUDA devices, in GiB per process, each as soon as it is known.

    It has a row for each parallel mode and each kind of activation checkpointing.
    """
    yield f"GiB of one process, {vocab_size:,} token rows, micro-batches as in the recipe"
    parts = "".join(f"{name:>13}" for name in (*(part.name for part in fields(Memory)), "total"))
    yield f"{'processes':>9}  {'mode':6}{'checkpointing':>14}{parts}"
    for (size, mode), checkpointing in product(_MODES, _LEVELS):
        memory = step_memory(recipe, vocab_size, Setting(checkpointing, mode, size))
        numbers = "".join(f"{part / 2**30:13.2f}" for part in (*astuple(memory), memory.total))
        yield f"{size:9}  {mode:6}{checkpointing:>14}{numbers}"


@dataclass(frozen=True)
class _Parameters:
    """Parameter counts of a model."""

    all: int
    layer: int  # of the largest layer
    ends: int  # outside the layers
    optimizer: int  # numbers in the optimiser's state


@cache
def _parameters(config: ModelConfig, vocab_size: int, optimizer: str) -> _Parameters:
    with torch.device("meta"):
        model = make_model(config, vocab_size)
    layers = [_numbers(layer) for layer in layers_of(model)]
    every = _numbers(model)
    state = 2 * every  # two moments
    if optimizer == "adafactor":  # for a matrix, one number per row, and per column of each projection
        state = sum(
            p.numel() if p.dim() < 2 else p.shape[0] + count * p.shape[1] for p, count in projections_in(model).items()
        )
    if optimizer == "muon":  # one moment of a hidden matrix
        state -= sum(p.numel() for p in hidden_matrices(model))
    return _Parameters(every, max(layers), every - sum(layers), state)


def count_parameters(config: ModelConfig) -> int:
    """Count the parameters of a model without its rows of tokens."""
    with torch.device("meta"):
        model = make_model(config, _ROWS)
    return sum(parameter.numel() for parameter in model.parameters() if _ROWS not in parameter.shape)


def _numbers(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _stage_memory(recipe: Recipe, stage: Stage, setting: Setting, vocab_size: int) -> Memory:
    run, kind = recipe.run, unit_type(recipe.model, recipe.generator)
    models = kind.sizes(stage, recipe.loss, recipe.generator)
    counted = [_parameters(config, vocab_size, recipe.optimizer.name) for config, *_ in models]
    numbers = sum(each.all for each in counted)
    shards = _shards(recipe.parallel, setting)
    size = stage.micro_batch_size
    formats = Numbers(run.precision, setting.device, sharded=shards > 1)
    mode = setting.checkpointing or run.activation_checkpointing
    weights, gradients = 4 * numbers, 4 * numbers
    if shards > 1:
        # parameters outside the layers, and two layers, are gathered
        gathered = sum(each.ends for each in counted) + 2 * max(each.layer for each in counted)
        weights = weights // shards + gathered * formats.narrow
        if recipe.parallel.reduce != "step" or stage.batch_size <= size * setting.world_size:
            gradients = gradients // shards + gathered * 4
    elif formats.casts:
        weights += 2 * numbers  # autocast caches its copies
    source, batch = stage.data.source_length, min(size, 2)  # a third sequence adds as much as the second
    saved = [activations(config, source, targets, formats, batch) for config, targets, _ in models]
    backward = [size * each.working_bytes(mode) for each in saved]
    losses = [
        _loss_working(size * targets, config.width, vocab_size, formats, passes) for config, targets, passes in models
    ]
    return Memory(
        weights=weights,
        gradients=gradients,
        optimizer=4 * sum(each.optimizer for each in counted) // shards,
        activations=round(
            size * sum(passes * each.saved_bytes(mode) for each, (_, _, passes) in zip(saved, models, strict=True))
        ),
        working=round(max(*backward, *losses)),
    )


def _shards(config: ParallelConfig, setting: Setting) -> int:
    mode = setting.mode or config.mode
    if mode == "ddp":
        return 1
    if mode == "fsdp":
        return setting.world_size
    return min(config.shard_size or setting.local_size, setting.world_size)


def _loss_working(targets: int, width: int, vocab_size: int, numbers: Numbers, passes: int) -> int:
    """Estimate the working memory of one chunk of the loss.

    This includes logits and log-probabilities with their gradients, bfloat16 copies if used, the probabilities of both
    passes of R3F, and the gradient of the output layer.
    """
    logit = passes * (4 * 4 + (2 * numbers.narrow if numbers.narrow < 4 else 0)) + (passes - 1) * 4 * 4
    return min(CHUNK, targets) * vocab_size * logit + vocab_size * width * numbers.narrow


def dry_run(
    gradients: Callable[[Stage, Sequence[Batch]], Any],
    optimizer: torch.optim.Optimizer,
    unit: TrainUnit,
    vocab_size: int,
    world: World,
) -> None:
    """Pass the largest micro-batch of every stage forward and backward, twice if a step has several.

    Gradients are dropped; random state, weights and optimizer state do not change. Memory for the optimizer's state is
    allocated meanwhile. All ranks call this together.
    """
    recipe, cuda = unit.recipe, world.device.type == "cuda"
    setting = Setting(world_size=world.size, local_size=world.local_size, device="cuda" if cuda else "cpu")
    for stage in unit.curriculum:
        try:
            with torch.random.fork_rng([world.device] if cuda else []):
                held = _missing_state(optimizer)
                batch = unit.largest_batch(stage, vocab_size)
                several = stage.batch_size > stage.micro_batch_size * world.size
                gradients(stage, [batch, batch] if several else [batch])
                del held
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            need, shard = step_memory(recipe, vocab_size, setting), world.size > 1 and recipe.parallel.mode == "ddp"
            message = _describe_lack(stage, vocab_size, need, memory_capacity(world.device), shard=shard)
            raise FarspanError(message) from error
        finally:
            optimizer.zero_grad(set_to_none=True)
    if cuda:
        torch.cuda.empty_cache()  # cached blocks may not suit batches of other widths


def _missing_state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Allocate as much memory as the optimizer's state takes; none if the optimizer already has it."""
    if optimizer.state or isinstance(optimizer, Adafactor):
        return []
    return [
        torch.empty_like(p)
        for group in optimizer.param_groups
        for p in group["params"]
        for _ in range(1 if group.get("count") else 2)  # Muon has one moment of a hidden matrix
    ]


def _describe_lack(stage: Stage, vocab_size: int, need: Memory, capacity: int, *, shard: bool) -> str:
    """Describe the batch that failed, the memory it needs, and the cures; ``shard`` adds sharding to them."""
    parts = ", ".join(f"{name} {size / 2**30:.1f}" for name, size in vars(need).items())
    return (
        f"out of memory before the first step, with {stage.micro_batch_size} x {stage.data.source_length} source and "
        f"{stage.data.target_length} target positions: the device has {capacity / 2**30:.1f} GiB, a step needs about "
        f"{need.total / 2**30:.1f} ({parts}); set a lower run.micro_batch_size, run.activation_checkpointing=layer"
        f"{', parallel.mode=fsdp' if shard else ''} or shorter sequences (--estimate {vocab_size} prints what a step "
        "needs)"
    )
