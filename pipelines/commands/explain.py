"""``farspan mask OBJECTIVE --options``."""

from __future__ import annotations

import argparse
from typing import Any

from corpora.address_space import check_address_space
from corpora.errors import FarspanError


class Explain(argparse.Action):
    """Print the explanation of the objective named before this flag, and exit."""

    def __init__(self, option_strings: Any, dest: str) -> None:
        meaning = "explain the objective, its options and presets, and stop"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=meaning)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        name = getattr(namespace, "objective", None)
        try:
            check_address_space()
            from objectives.api.protocol import OBJECTIVES
            from pipelines.inspect.explain import explain

            print(explain(OBJECTIVES, name) if name else "name the objective first: farspan mask span --options")
        except FarspanError as error:
            parser.exit(1, f"farspan: {error}\n")
        parser.exit()
