"""The commands about recipes: training and printing recipes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from corpora.errors import FarspanError, mark_raised_alike
from corpora.printing import compare_estimate
from corpora.reporting import Silence, note, print_table, suggest
from corpora.settings import format_assignment, parse_assignment
from trainer.options import Recipes, Training
from trainer.recipe_files import find_recipe, read_tables

if TYPE_CHECKING:
    from trainer.recipe import Recipe
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
    from trainer.run import train as run

    assignments = [format_assignment(key, value) for key, value in (settings or {}).items()]
    return run.train(_load(os.fspath(recipe), assignments), name=name_of(os.fspath(recipe)))


def _load(name: str, assignments: Sequence[str]) -> Recipe:
    """Load a recipe, and refuse settings of a model that ``run.adopt_model`` would replace."""
    from trainer.conversion.adapt import TRAINING
    from trainer.recipe import load_recipe

    recipe = load_recipe(name, assignments)
    ignored = [key for key, _ in map(parse_assignment, assignments) if key.startswith("model.")]
    ignored = [key for key in ignored if key.removeprefix("model.") not in TRAINING]
    if ignored and recipe.run.adopt_model and recipe.run.initial_model:
        raise FarspanError(
            f"--set {ignored[0]}: the model is that of run.initial_model; to give its section here, set "
            "run.adopt_model=false"
        )
    return recipe


def name_of(recipe: str) -> str:
    """Return the name of a recipe that was given by name or as a file."""
    return os.path.basename(recipe).removesuffix(".toml")


def run_command(options: Training) -> None:
    """Train, continue or estimate."""
    with mark_raised_alike():
        find_recipe(options.recipe)  # a wrong name fails before the slow imports
    if options.estimate is not None:
        note(
            f"{name_of(options.recipe)}: measures a step's memory on tensors without contents, which may take a "
            "minute, then the time of updates if the recipe names data"
        )
    with Silence(partial(note, f"{name_of(options.recipe)}: loads PyTorch")):
        from trainer.run.memory import memory_table  # here, because --help does not need it
        from trainer.run.train import train

        with mark_raised_alike():
            recipe = _load(options.recipe, options.assignments)
    if options.estimate is not None:
        from trainer.run.estimate import complete_recipe, estimate_lines

        recipe, rows = complete_recipe(recipe, options.estimate)
        for line in chain(memory_table(recipe, rows), estimate_lines(recipe, rows)):
            print(line, flush=True)
        return
    fresh, begun = not Path(recipe.run.directory, "checkpoints").exists(), time.monotonic()
    try:
        outcome = train(recipe, name=name_of(options.recipe))
    except BrokenPipeError as error:
        raise FarspanError(
            f"the reader of this run's output has ended ({error}); the same command, with its output sent elsewhere, "
            "continues from the last checkpoint"
        ) from error
    if outcome.finished:
        if fresh and (
            comparison := compare_estimate(recipe.run.directory, time.monotonic() - begun, steps=recipe.run.steps)
        ):
            note(comparison)
        pairs = (
            recipe.data.pairs
            and f"farspan generate {recipe.run.directory} --pairs {recipe.data.pairs} --output predictions"
        )
        suggest(pairs or f"farspan view {recipe.run.directory}")


def print_recipes(options: Recipes) -> None:
    """List the recipes, or print one."""
    if options.recipe is None:
        _list_recipes(options)
        return
    if options.for_programs:
        raise FarspanError(f"farspan recipes {options.recipe}: prints TOML; leave --json and --csv out")
    path = find_recipe(options.recipe)
    print(path.read_text("utf-8"), end="")
    for name in read_tables(options.recipe)[1][1:]:
        print(f"# {path.name} extends {name}: farspan recipes {name.removesuffix('.toml')}")


def _list_recipes(options: Recipes) -> None:
    note("counts the parameters of all models")
    from trainer.recipe_reference import recipes

    facts = recipes()
    if options.print_rows("recipes", "packaged recipes", facts):
        return
    table = Table()
    for name in ("system", "recipe", "layers", "width", "parameters", "source", "target", "updates", "published for"):
        table.add_column(
            name, justify="left" if name in ("system", "recipe", "published for") else "right", no_wrap=name == "recipe"
        )
    system = ""
    for row in sorted(facts, key=lambda row: (row["system"] == "tiny", row["system"], row["recipe"])):
        if row["system"] != system:
            system = row["system"]
            table.add_section()
        size = ("+".join(map(str, filter(None, row["layers"]))), str(row["width"]), f"{row['parameters'] / 1e6:,.0f} M")
        lengths = (f"{row['source_length']:,}", f"{row['target_length'] or ''}")
        length = f"{row['updates']:,}" if row["updates"] else f"{row['epochs']:g} epochs"
        table.add_row(system, row["recipe"], *size, *lengths, length, row["published"])
    print_table(table)
