"""The dry run: a pass of the largest batch, so that a lack of memory shows before the first update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from corpora.errors import FarspanError, out_of_memory
from trainer.data.batch import Batch
from trainer.data.curriculum import Stage
from trainer.optim.adafactor import Adafactor
from trainer.parallel.device import memory_capacity
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run.memory import Setting, step_memory
from trainer.run.units.unit import TrainUnit


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
            raise FarspanError(_message(recipe, stage, vocab_size, setting, memory_capacity(world.device))) from error
        finally:
            optimizer.zero_grad(set_to_none=True)
    if cuda:
        torch.cuda.empty_cache()  # cached blocks may not suit batches of other widths


def _missing_state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Allocate as much memory as the optimizer's state takes; none if the optimizer already has it."""
    if optimizer.state or isinstance(optimizer, Adafactor):
        return []
    return [torch.empty_like(p) for group in optimizer.param_groups for p in group["params"] for _ in range(2)]


def _message(recipe: Recipe, stage: Stage, vocab_size: int, setting: Setting, capacity: int) -> str:
    """Describe the batch that failed and its estimated memory."""
    need = step_memory(recipe, vocab_size, setting)
    parts = ", ".join(f"{name} {size / 2**30:.1f}" for name, size in vars(need).items())
    shard = ", parallel.mode=fsdp" if setting.world_size > 1 and recipe.parallel.mode == "ddp" else ""
    return (
        f"out of memory before the first step, with {stage.micro_batch_size} x {stage.data.source_length} source and "
        f"{stage.data.target_length} target positions: the device has {capacity / 2**30:.1f} GiB, a step needs about "
        f"{need.total / 2**30:.1f} ({parts}); set a lower run.micro_batch_size, run.activation_checkpointing=layer"
        f"{shard} or shorter sequences (--estimate {vocab_size} prints what a step needs)"
    )
