"""The subcommands: what each takes and which job it starts; heavy imports wait for the one that is run."""

from __future__ import annotations

import argparse

from pipelines.commands.conversion import add_convert
from pipelines.commands.corpora import add_corpus
from pipelines.commands.looking import add_looking
from pipelines.commands.masks import add_check_objective, add_mask
from pipelines.commands.shared import FORMATTER
from pipelines.commands.stages import add_stages
from pipelines.commands.text import add_documents, add_tokenizer
from pipelines.commands.training import add_train

__all__ = ["build_parser"]


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="farspan",
        formatter_class=FORMATTER,
        description="Data and training for long-context text-to-text models.",
        epilog="""\
from raw text to a trained model:
  farspan tokenizer train --kind byte-level-bpe --vocab-size 32000 --input 'text/*.jsonl' --output tokenizer
  farspan documents --input wiki='text/*.jsonl' --tokenizer tokenizer --held-out 0.01 --output documents
  farspan corpus random --documents documents --sequence-length 16384 --output corpus
  farspan mask span --preset bart_ls_mixed --corpus corpus --output masks
  farspan show masks
  farspan train bart_ls_base --set data.corpus=corpus --set data.masks=masks --set run.directory=run
""",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_tokenizer(commands)
    add_documents(commands)
    add_corpus(commands)
    add_stages(commands)
    add_mask(commands)
    add_check_objective(commands)
    add_looking(commands)
    add_convert(commands)
    add_train(commands)
    return parser
