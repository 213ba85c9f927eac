"""The recipe of a run in its directory, with every value filled in, for later uses of its model."""

from __future__ import annotations

from pathlib import Path

from corpora.errors import FarspanError
from corpora.settings import parse
from trainer.checkpoint.run_files import RECIPE, DamagedError, read_sealed
from trainer.recipe import Recipe


def kept_recipe(directory: Path) -> Recipe | None:
    """Read the recipe in a run's directory; None if there is none."""
    path = directory / RECIPE
    if not path.is_file():
        return None
    try:
        return parse(Recipe, read_sealed(path)["recipe"], str(path))
    except (DamagedError, KeyError) as error:
        raise FarspanError(f"{path}: is damaged ({error}); continue the run, which writes it again") from None
