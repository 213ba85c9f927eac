"""The commands about recipes: training and printing recipes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from corpora.errors import FarspanError
from corpora.reporting import note
from corpora.settings import format_assignment
from trainer.options import Recipes, Training
from trainer.parallel.reports import raised_alike
from trainer.recipe_files import find_recipe, read_tables, summaries

if TYPE_CHECKING:
    from trainer.run.train import Outcome


def train(recipe: str | os.PathLike[str], settings: Mapping[str, Any] | None = None) -> Outcome:
    """Train, or continue an interrupted run, as ``farspan train`` does.

    Args:
        recipe: name of a packaged recipe (``tiny``, ``bart_ls_base``, ...), or a TOML file.
        settings: keys of the recipe with the values that replace its own: ``{"data.corpus": "corpus"}``.

    Returns:
        The number of updates made, and whether the run is finished.

    Raises:
        FarspanError: an error that the user can fix.
    """
    from trainer.recipe import load_recipe
    from trainer.run import train as run

    assignments = [format_assignment(key, value) for key, value in (settings or {}).items()]
    return run.train(load_recipe(os.fspath(recipe), assignments), name=name_of(os.fspath(recipe)))


def name_of(recipe: str) -> str:
    """Return the name of a recipe that was given by name or as a file."""
    return os.path.basename(recipe).removesuffix(".toml")


def run_command(options: Training) -> None:
    """Train, continue or estimate."""
    with raised_alike():
        find_recipe(options.recipe)  # a wrong name fails before the slow imports
    if options.estimate is not None:
        note(
            f"{name_of(options.recipe)}: measures a step's memory on tensors without contents, which may take a minute"
        )
    from trainer.recipe import load_recipe
    from trainer.run.memory import memory_table  # here, because it loads PyTorch, which --help does not need
    from trainer.run.train import train

    with raised_alike():
        recipe = load_recipe(options.recipe, options.assignments)
    if options.estimate is not None:
        for line in memory_table(recipe, options.estimate):
            print(line, flush=True)
        return
    try:
        train(recipe, name=name_of(options.recipe))
    except BrokenPipeError as error:
        raise FarspanError(
            f"the reader of this run's output has ended ({error}); the same command, with its output sent elsewhere, "
            "continues from the last checkpoint"
        ) from error


def print_recipes(options: Recipes) -> None:
    """List the recipes, or print one."""
    if options.recipe is None:
        for name, summary in summaries().items():
            print(f"{name:24} {summary}")
        return
    path = find_recipe(options.recipe)
    print(path.read_text("utf-8"), end="")
    for name in read_tables(options.recipe)[1][1:]:
        print(f"# {path.name} extends {name}: farspan recipes {name.removesuffix('.toml')}")
