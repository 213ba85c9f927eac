"""``python -m trainer RECIPE --set key=value``, also under ``torchrun``."""

from __future__ import annotations

import argparse
import os
import sys

from corpora.errors import FarspanError
from trainer.memory import memory_table
from trainer.recipe import load_recipe
from trainer.run import train


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 when the run is finished or was interrupted, with a checkpoint; 2 for what the user can cure."""
    parser = argparse.ArgumentParser(prog="trainer", description="Train, or continue, what a recipe describes.")
    parser.add_argument("recipe", help="a packaged recipe (bart_ls_base, bart_ls_large, tiny) or a path to a TOML file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a value, e.g. run.steps=100"
    )
    parser.add_argument("--estimate", type=int, metavar="VOCAB", help="print the memory that a step needs, and stop")
    given = parser.parse_args(arguments)
    try:
        recipe = load_recipe(given.recipe, given.set)
        if given.estimate is None:
            train(recipe)
        else:
            print(memory_table(recipe, given.estimate))
    except (FarspanError, OSError) as error:  # of the user, or of the disk
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # After an error, threads and devices may wait for other processes that will never answer.
    os._exit(status) if status else sys.exit()
