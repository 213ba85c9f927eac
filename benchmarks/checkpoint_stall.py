"""Cost of a checkpoint in training: the seconds that it adds to a run, as a share of the recipe's interval.

A round is the same updates three times: without a checkpoint, with one that is written while training goes on, and with
one that training waits for. The checkpoint is begun after the first update; should it not be written when the last
update has ended, the wait counts too. What it adds is all of it: copying the state, and that updates are slower while
another thread hashes and writes. On a processor that thread takes its time from training; on a GPU it would not.

Rows are of the recipe's own sizes; ``--source``, ``--target`` and ``--batch`` make a larger recipe bearable here. An
update is then shorter than the recipe's, and the share printed is larger than the recipe's own.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from in_memory import InMemory, random_batches
from report import arguments, machine, publish

from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.selection import CheckpointConfig
from trainer.model.build import build_model
from trainer.parallel.distributed import World
from trainer.recipe import Recipe, load_recipe
from trainer.run.step import Trainer
from trainer.run.units.single import Seq2SeqUnit

GOAL = 0.01
MODES = {"none": None, "asynchronous": True, "synchronous": False}
HEADINGS = (
    "checkpoint",
    "MiB",
    "training waits",
    "it adds",
    "lowest..highest",
    "of an interval of",
    "share",
    "goal",
    "processor time added",
    "share",
)


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=5)
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--source", type=int, help="tokens; without, the recipe's")
    parser.add_argument("--target", type=int, help="tokens; without, the recipe's")
    parser.add_argument("--batch", type=int, help="sequences an update; without, the recipe's")
    parser.add_argument("--vocab", type=int, default=32_768, help="rows of the token table")
    parser.add_argument("--steps", type=int, default=4, help="updates of a run")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    recipe = load_recipe(options.recipe)
    trainer, batches = make_trainer(recipe, options)
    with tempfile.TemporaryDirectory(prefix="farspan-stall-") as folder:
        runs = [
            {
                mode: measured(trainer, batches, Path(folder) / mode, asynchronous, options.steps)
                for mode, asynchronous in MODES.items()
            }
            for _ in range(options.rounds + 1)
        ][1:]  # the first one warms up
    size = max(run["synchronous"]["bytes"] for run in runs)
    every = recipe.checkpoint.every
    interval, used = (
        every * statistics.median(run["none"][clock] for run in runs) / options.steps
        for clock in ("seconds", "processor")
    )
    rows = []
    for mode in ("asynchronous", "synchronous"):
        added, processor = (
            [run[mode][clock] - run["none"][clock] for run in runs] for clock in ("seconds", "processor")
        )
        rows.append(
            (
                mode,
                f"{size / 2**20:,.0f}",
                f"{statistics.median(run[mode]['waited'] for run in runs):.3f} s",
                f"{statistics.median(added):.3f} s",
                f"{min(added):.3f}..{max(added):.3f}",
                f"{every} updates, {interval:,.0f} s",
                f"{statistics.median(added) / interval:.2%}",
                f"{GOAL:.0%}" if mode == "asynchronous" else "",
                f"{statistics.median(processor):.3f} s",
                f"{statistics.median(processor) / used:.2%}",
            )
        )
    publish(
        f"A checkpoint in {options.steps} updates of {options.recipe} ({options.threads} threads), float32",
        HEADINGS,
        rows,
        machine("torch"),
        options.json,
        {"options": vars(options), "interval": interval, "runs": runs},
    )


def make_trainer(recipe: Recipe, options: argparse.Namespace) -> tuple[Trainer, InMemory]:
    """The recipe's model with two updates behind it, and random rows for more."""
    micro, data = recipe.run.micro_batch_size, recipe.data
    count = -(-(options.batch or recipe.run.batch_size) // micro)
    widths = (options.source or data.source_length, options.target or data.target_length)
    rows = InMemory(random_batches(count, micro, *widths, options.vocab))
    run = replace(recipe.run, device="cpu", precision="fp32")
    model = build_model(recipe.model, options.vocab, run.seed)
    unit = Seq2SeqUnit(replace(recipe, run=run))
    trainer = Trainer(unit, model, World.alone(), run, recipe.parallel, recipe.optimizer, recipe.loss)
    for _ in range(2):
        update(trainer, rows)
    return trainer, rows


def update(trainer: Trainer, rows: InMemory) -> None:
    made = trainer.update(rows)
    assert made
    trainer.record(made)


def measured(
    trainer: Trainer, rows: InMemory, directory: Path, asynchronous: bool | None, steps: int
) -> dict[str, float]:
    """Seconds of a run and of processor time, those in which training waited for its checkpoint, and that one's bytes.

    ``asynchronous`` is None for no checkpoint.
    """
    checkpoints = None
    if asynchronous is not None:
        config = CheckpointConfig(asynchronous=asynchronous)
        checkpoints = Checkpoints(directory, config, World.alone(), identity={}, vocabulary={})
        checkpoints.restore(trainer.model, trainer.optimizer)
    waited, begin, processor = 0.0, time.perf_counter(), time.process_time()
    for number in range(steps):
        update(trainer, rows)
        if checkpoints and number == 0:
            start = time.perf_counter()
            checkpoints.save(trainer.step, 0, trainer.model, trainer.optimizer)
            waited += time.perf_counter() - start
    start = time.perf_counter()
    if checkpoints:
        checkpoints.finish()
    end, processor = time.perf_counter(), time.process_time() - processor
    size = sum(path.stat().st_size for path in directory.rglob("*.safetensors"))
    shutil.rmtree(directory, ignore_errors=True)
    return {"seconds": end - begin, "processor": processor, "waited": waited + end - start, "bytes": size}


if __name__ == "__main__":
    main()
