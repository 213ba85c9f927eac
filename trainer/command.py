"""The command that trains: ``farspan train`` and ``python -m trainer``, which differ in nothing but their name."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from corpora.errors import FarspanError
from corpora.settings import assigned
from trainer.parallel.reports import raised_alike
from trainer.recipe_files import find_recipe

if TYPE_CHECKING:
    from trainer.run.train import Outcome


def add_arguments(parser: ArgumentParser) -> None:
    """Tell ``parser`` of the recipe and what can be said beside it."""
    parser.add_argument("recipe", help="a packaged recipe by name (tiny, bart_ls_base, ...), or a TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key; repeatable")
    parser.add_argument(
        "--estimate",
        type=int,
        metavar="ROWS",
        help="print the memory that a step needs with so many rows in the token table, and stop; reads no data",
    )


def train(recipe: str | os.PathLike[str], settings: Mapping[str, Any] | None = None) -> Outcome:
    """Train, or continue an interrupted run, as ``farspan train`` does.

    Args:
        recipe: name of a packaged recipe (``tiny``, ``bart_ls_base``, ...), or a TOML file.
        settings: keys of the recipe with the values that replace its own: ``{"data.corpus": "corpus"}``.

    Returns:
        The number of updates made, and whether the run is finished.

    Raises:
        FarspanError: what the user can cure.
    """
    from trainer.recipe import load_recipe
    from trainer.run import train as run

    assignments = [assigned(key, value) for key, value in (settings or {}).items()]
    return run.train(load_recipe(os.fspath(recipe), assignments))


def run_command(options: Namespace) -> None:
    """Train, continue or estimate, as ``options`` of ``add_arguments`` say.

    Raises:
        FarspanError: what the user can cure.
        OSError: a disk that is full or gone.
    """
    with raised_alike():
        find_recipe(options.recipe)  # a wrong name is an error at once
    from trainer.memory.estimate import memory_table  # here, because they load PyTorch, which no --help needs
    from trainer.recipe import load_recipe
    from trainer.run.train import train

    with raised_alike():
        recipe = load_recipe(options.recipe, options.set)
    if options.estimate is not None:
        print(memory_table(recipe, options.estimate))
        return
    try:
        train(recipe)
    except BrokenPipeError as error:
        raise FarspanError(
            f"whoever read the progress of this run has gone ({error}); the same command, with its output sent "
            "elsewhere, goes on from the last checkpoint"
        ) from error
