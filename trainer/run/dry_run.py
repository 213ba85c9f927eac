"""The largest batch, forward and backward, before the first update: a run is out of memory now or never."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from trainer.data.config import Batch
from trainer.data.curriculum import Stage
from trainer.memory.estimate import Setting, cures, step_memory
from trainer.parallel.device import memory_capacity
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run.joint import asking_generator

_SIGNS = ("out of memory", "can't allocate memory", "not enough memory")
"""What PyTorch says of memory that it was not given, on CUDA devices and elsewhere."""


def dry_run(
    gradients: Callable[[Stage, Sequence[Batch]], Any],
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    vocab_size: int,
    world: World,
) -> None:
    """Pass the largest micro-batches of every stage forward and backward: two of them where a step has several.

    Gradients are thrown away, and random numbers, weights and optimiser state are as before. The state that the
    optimiser will have is held for the while. Ranks that share weights all call this together.

    Args:
        gradients: forward and backward of the micro-batches of a step, as the run makes them in this stage.
        optimizer: of the model.
        recipe: of the run.
        vocab_size: rows of the token table.
        world: this one's device is tried.

    Raises:
        FarspanError: out of memory, with settings that would fit by the estimate of ``trainer.memory.estimate``.
    """
    setting = Setting(
        world_size=world.size, local_size=world.local_size, device="cuda" if world.device.type == "cuda" else "cpu"
    )
    for stage in recipe.all_stages:
        try:
            with torch.random.fork_rng([world.device] if world.device.type == "cuda" else []):
                held = _missing_state(optimizer, recipe)
                batch = largest_batch(stage, recipe.model.decoder is not None, vocab_size)
                if recipe.generator and recipe.generator.mode == "joint":
                    batch = asking_generator(batch)
                several = stage.batch_size > stage.micro_batch_size * world.size
                gradients(stage, [batch, batch] if several else [batch])
                del held
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise FarspanError(_message(recipe, stage, vocab_size, setting, memory_capacity(world.device))) from error
        finally:
            optimizer.zero_grad(set_to_none=True)
    if world.device.type == "cuda":
        torch.cuda.empty_cache()  # its pieces may fit batches of other widths badly


def largest_batch(stage: Stage, decoder: bool, vocab_size: int) -> Batch:
    """A micro-batch of full width without padding, random tokens asked everywhere, or, without a decoder, at every
    fourth position; the first position is global."""
    rows, data = min(stage.micro_batch_size, stage.batch_size), stage.data
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(vocab_size, (rows, data.source_length), generator=generator, dtype=torch.int32)
    first = (torch.arange(data.source_length) == 0).expand(rows, -1)
    if decoder:
        labels = torch.randint(vocab_size, (rows, data.target_length), generator=generator, dtype=torch.int32)
    else:
        labels = source.masked_fill(torch.arange(data.source_length) % 4 > 0, IGNORED)
    return Batch(
        samples=np.arange(rows),
        sequence_ids=np.zeros((rows, 16), np.uint8),
        source_ids=source,
        source_padding_mask=None,
        decoder_ids=labels if decoder else None,
        labels=labels,
        source_tokens=source.numel(),
        target_tokens=int((labels >= 0).sum()),
        global_positions=first,
    )


def out_of_memory(error: BaseException) -> bool:
    """Whether it is memory that was asked for and not given."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(sign in str(error).lower() for sign in _SIGNS)


def _missing_state(optimizer: torch.optim.Optimizer, recipe: Recipe) -> list[Tensor]:
    """Room for what the optimiser makes at its first step; none if it has made it."""
    if optimizer.state or recipe.optimizer.name == "adafactor":
        return []
    return [torch.empty_like(p) for group in optimizer.param_groups for p in group["params"] for _ in range(2)]


def _message(recipe: Recipe, stage: Stage, vocab_size: int, setting: Setting, capacity: int) -> str:
    """What was tried, what it needs by estimate, and what would fit."""
    need = step_memory(recipe, vocab_size, setting)
    # Some of it is lost to what the estimate leaves out; and what has just failed is no cure, whatever it says.
    room = min(int(0.92 * capacity), int(0.9 * need.total))
    found = [" ".join(f"--set {one}" for one in parts) for parts in cures(recipe, vocab_size, room, setting)]
    cure = f"by estimate these fit: {', or '.join(found)}" if found else (
        "by estimate only shorter sequences, a smaller model or more devices help"
    )  # fmt: skip
    parts = ", ".join(f"{name} {size / 2**30:.1f}" for name, size in vars(need).items())
    return (
        f"out of memory before the first step, with {stage.micro_batch_size} x {stage.data.source_length} source and "
        f"{stage.data.target_length} target positions: the device has {capacity / 2**30:.1f} GiB, a step needs about "
        f"{need.total / 2**30:.1f} ({parts}); {cure}"
    )
