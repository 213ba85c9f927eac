"""The parser of all commands, and its completion in a shell. Heavy imports are delayed until a command runs."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from corpora.options import Flag
from pipelines.commands.command import Parser
from pipelines.commands.table import COMMANDS

__all__ = ["WELCOME", "build_parser"]

_GROUPS = {"tokenizer": "Train a tokenizer.", "corpus": "Build sequences from documents."}
_EXAMPLE = """\
from raw text to a trained model:
  farspan tokenizer train --kind byte-level-bpe --vocab-size 32000 --input 'text/*.jsonl' --output tokenizer
  farspan documents --input wiki='text/*.jsonl' --tokenizer tokenizer --held-out 0.01 --output documents
  farspan corpus random --documents documents --sequence-length 16384 --output corpus
  farspan mask span --preset bart_ls_mixed --corpus corpus --output masks
  farspan show masks
  farspan train bart_ls_large --set data.corpus=corpus --set data.masks=masks --set run.directory=run

from questions to scores:
  farspan documents --input qasper=scrolls/qasper --format scrolls --tokenizer tokenizer --output qasper-documents
  farspan pairs --input qasper=scrolls/qasper --format scrolls --documents qasper-documents --output pairs
  farspan train bart_ls_qasper --set data.pairs=pairs --set run.initial_model=run --set run.directory=tuned
  farspan generate tuned --pairs pairs --split validation --output predictions
  farspan evaluate predictions --metrics scrolls:qasper
"""
WELCOME = """\
farspan makes long-context training data from raw text, and trains on it. To begin, six commands:
  farspan tokenizer train  train a tokenizer on your text, if you have none
  farspan documents        tokenise raw text once
  farspan corpus random    put the documents into sequences
  farspan mask span        choose the spans that a model learns to restore
  farspan show             look at a row: its text, what is hidden, what the model sees
  farspan train            train a model on it
farspan --help lists all commands with an example; farspan COMMAND --help explains one."""


def build_parser() -> Parser:
    """Build the parser of ``farspan``; the parsed namespace holds the chosen command as ``chosen``."""
    parser = Parser(
        prog="farspan", description="Data and training for long-context text-to-text models.", epilog=_EXAMPLE
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and stop")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    groups: dict[str, Any] = {}
    for command in COMMANDS:
        *group, word = command.name.split()
        if group and group[0] not in groups:
            made = subparsers.add_parser(group[0], help=_GROUPS[group[0]], description=_GROUPS[group[0]])
            groups[group[0]] = made.add_subparsers(required=True, metavar="COMMAND")
        added = (groups[group[0]] if group else subparsers).add_parser(
            word, help=command.summary, description=command.summary, command=command
        )
        added.set_defaults(chosen=command)
    return parser


class _Version(argparse.Action):
    """Print the installed version and stop."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        from corpora.storage.manifest import farspan_version

        print(f"farspan {farspan_version()}")
        parser.exit()


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


def complete(options: Completion) -> None:
    """Print the script that completes commands, flags and their choices."""
    import shtab

    parser = build_parser()
    _declare_all(parser)
    print(shtab.complete(parser, options.shell))


def _declare_all(parser: Parser) -> None:
    parser.declare()
    for action in parser._actions:
        for inner in (action.choices or {}).values() if isinstance(action.choices, dict) else ():
            _declare_all(inner)
