"""The recipe of a run in its directory, with every value filled in, for later uses of its model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from corpora.errors import FarspanError
from corpora.settings import parse
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.strict_json import StructureError, parse_json
from trainer.recipe import Recipe

RECIPE = "recipe.json"


def keep_recipe(recipe: Recipe, directory: Path) -> None:
    """Write the recipe of a run into its directory."""
    write_bytes(str(directory / RECIPE), json.dumps(asdict(recipe), indent=1).encode() + b"\n")


def kept_recipe(directory: Path) -> Recipe | None:
    """Read the recipe in a run's directory; None if there is none.

    Raises:
        FarspanError: it is damaged, or another farspan wrote it.
    """
    path = directory / RECIPE
    if not path.is_file():
        return None
    try:
        return parse(Recipe, parse_json(read_bytes(str(path))), str(path))
    except StructureError as error:
        raise FarspanError(f"{path}: is damaged ({error}); continue the run, which writes it again") from None
