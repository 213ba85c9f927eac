"""``farspan completion``: shell completion of commands, flags and their choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from corpora.options import Flag
from pipelines.commands.command import Parser


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Options of ``farspan completion``.

    Attributes:
        shell: shell to print the script for.

    Examples:
        farspan completion bash > ~/.local/share/bash-completion/completions/farspan
        farspan completion zsh > ~/.zfunc/_farspan
        farspan completion fish > ~/.config/fish/completions/farspan.fish
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], Flag(positional=True)]


def command(options: Completion) -> None:
    """Print the script."""
    import shtab

    from pipelines.commands import build_parser

    parser = build_parser()
    _declare_all(parser)
    print(shtab.complete(parser, options.shell))


def _declare_all(parser: Parser) -> None:
    parser.declare()
    for action in parser._actions:
        for inner in (action.choices or {}).values() if isinstance(action.choices, dict) else ():
            _declare_all(inner)
