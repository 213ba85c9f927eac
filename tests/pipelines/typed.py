"""Command lines that are read into the dataclass of a command."""

import argparse
from typing import Any, TypeVar

from corpora.options import add_flags
from corpora.settings import make

Options = TypeVar("Options")


def typed(kind: type[Options], line: str, **given: Any) -> Options:
    """The options that a line of flags says; ``given`` are those without a flag."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    add_flags(parser, kind)
    return make(kind, vars(parser.parse_args(line.split())), **given)
