"""Print the memory of a recipe's step, measured in a process of its own and by formula, as JSON.

Beside the peak, what the forward pass of a micro-batch leaves behind for the backward pass.
"""

import gc
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from trainer.model.build import build_model
from trainer.model.masked_lm import JointModel
from trainer.optim.optimizer import build_optimizer
from trainer.parallel.wrapping import apply_activation_checkpointing
from trainer.recipe import Recipe, load_recipe
from trainer.run.memory import Setting, step_memory
from trainer.run.units import unit_type


def status(field: str) -> int:
    """Bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) << 10


def run(recipe: Recipe, vocab_size: int) -> int:
    """Two steps, of which the first makes the optimiser's state; what the last forward pass left behind."""
    model: Any = build_model(recipe.model, vocab_size, seed=0)
    (stage,) = recipe.curriculum
    if recipe.generator:
        generator: Any = build_model(recipe.generator.model, vocab_size, seed=1)
        model = JointModel(model, generator, recipe.generator.weight)
    unit = unit_type(recipe.model, recipe.generator)(recipe)
    batch = unit.largest_batch(stage, vocab_size)
    model.train()
    apply_activation_checkpointing(model, recipe.run.activation_checkpointing)
    optimizer = build_optimizer(model, recipe.optimizer)
    precision = torch.autocast("cpu", torch.bfloat16) if recipe.run.precision == "bf16" else nullcontext()
    for _ in range(2):
        for _ in range(stage.batch_size // stage.micro_batch_size):
            before = status("RssAnon")
            with precision:
                losses = model(**batch.inputs, loss=recipe.loss)
            kept = status("RssAnon") - before
            (losses.minimised if losses.divergence is None else losses.minimised + losses.divergence).backward()
            del losses
        optimizer.step()
        optimizer.zero_grad()
    return kept


def main(name: str, vocab_size: int, *changes: str) -> None:
    small = ["model.width=32", "data.source_length=256", "data.source_multiple=1", "data.target_length=64"]
    run(load_recipe("tiny", small), 100)  # loads all code
    gc.collect()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is resident now
    recipe = load_recipe(name, changes)
    kept = run(recipe, vocab_size)
    estimate = step_memory(recipe, vocab_size, Setting(device="cpu"))
    print(json.dumps({"peak": [status("VmHWM") - before, estimate.total], "activations": [kept, estimate.activations]}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
