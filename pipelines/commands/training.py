"""Training: ``farspan train``."""

from __future__ import annotations

from typing import Any

from pipelines.commands.shared import command


def add_train(commands: Any) -> None:
    parser = command(
        commands,
        "train",
        "Train a model from a corpus and a mask set; an interrupted run resumes.",
        _run_train,
        """\
A run lies in the folder run.directory: metrics.jsonl, and checkpoints. The same command begins it, goes on after
Ctrl-C, SIGTERM or a crash, and does nothing when all steps are made. What would change its numbers cannot be changed on
the way; where it lies, its micro-batches, checkpoints, metrics and evaluation can.

A recipe of your own may begin with `extends = "bart_ls_base"` and say only what differs. docs/training.md tells what
the sections are for; a wrong key is answered with the keys that there are.

examples:
  farspan train tiny --set data.corpus=corpus --set data.masks=masks --set run.directory=run
  farspan train tiny --set data.corpus=corpus --set data.objective.name=span --set data.objective.preset=bart_ls
  farspan train my/recipe.toml --set run.micro_batch_size=1 --set run.activation_checkpointing=layer
  farspan train bart_ls_base --estimate 50265
  torchrun --nproc-per-node 8 -m trainer bart_ls_base --set data.corpus=corpus --set data.masks=masks
""",
    )
    parser.add_argument("recipe", help="a packaged recipe by name (tiny, bart_ls_base, ...), or a TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key; repeatable")
    parser.add_argument(
        "--estimate",
        type=int,
        metavar="ROWS",
        help="print the memory that a step needs with so many rows in the token table, and stop; reads no data",
    )


def _run_train(options: Any) -> None:
    from trainer.memory import memory_table
    from trainer.recipe import load_recipe
    from trainer.run import train

    recipe = load_recipe(options.recipe, options.set)
    if options.estimate is None:
        train(recipe)
    else:
        print(memory_table(recipe, options.estimate))
