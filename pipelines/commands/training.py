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
        "example:\n  farspan train bart_ls_base --set data.corpus=corpus --set data.masks=masks",
    )
    parser.add_argument("recipe", help="a packaged recipe by name, or a TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key; repeatable")
    parser.add_argument(
        "--estimate",
        type=int,
        metavar="VOCAB",
        help="print the memory that a step needs with so many token rows, and stop",
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
