"""``python -m trainer RECIPE --set key=value``, also under ``torchrun``."""

from __future__ import annotations

import argparse
import sys

from corpora.errors import FarspanError
from trainer.recipe import load_recipe
from trainer.run import train


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 when the run is finished, 1 when it was interrupted, 2 for what the user can cure."""
    parser = argparse.ArgumentParser(prog="trainer", description="Train, or continue, what a recipe describes.")
    parser.add_argument("recipe", help="a packaged recipe (bart_ls_base, bart_ls_large, tiny) or a path to a TOML file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a value, e.g. run.steps=100"
    )
    given = parser.parse_args(arguments)
    try:
        return 0 if train(load_recipe(given.recipe, given.set)).finished else 1
    except FarspanError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
