"""Models in and out: ``farspan convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.commands.shared import command


def add_convert(commands: Any) -> None:
    parser = command(
        commands,
        "convert",
        "Make a model folder from a model of Hugging Face, of a run, or of farspan; or a Hugging Face folder from it.",
        _run_convert,
        """\
With --recipe a short model becomes the recipe's long one: positions are tiled, global projections copied, pooled
attention begins at zero. On inputs within the short model's reach the long one begins with the same logits. Widths,
layers and all other parts must be equal; what differs is listed.

With --masks the token table gets a row for each special token of the mask set; new rows begin as the mask token's,
each with a little noise of its own. A vocabulary that the data has and the model has not is otherwise extended when
training begins.

A run trains on from the output with --set run.initial_model=FOLDER.

examples:
  farspan convert bart-base bart-ls --recipe bart_ls_base --masks masks
  farspan train bart_ls_base --set run.initial_model=bart-ls --set data.corpus=corpus --set data.masks=masks
  farspan convert bart-base led --recipe led_base --set model.dropout=0.0
  farspan convert run led-trained --tokenizer tokenizer --to huggingface
""",
    )
    parser.add_argument("source", help="model folder of Hugging Face or farspan, or a run (its newest checkpoint)")
    parser.add_argument("output", help="folder to make; nothing is overwritten")
    parser.add_argument("--recipe", metavar="NAME", help="make the model the one of this recipe, a name or a TOML file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key of the recipe, or without one of the model (model.encoder.positions.count=4096)",
    )
    parser.add_argument("--masks", metavar="DIR", help="mask set whose special tokens the model must know")
    parser.add_argument("--vocab-size", type=int, metavar="N", help="or the rows of the token table")
    parser.add_argument("--tokenizer", metavar="PATH", help="the model's tokenizer, where its folder holds none")
    parser.add_argument("--to", choices=["farspan", "huggingface"], default="farspan", help="default: farspan")


def _run_convert(options: Any) -> None:
    from trainer.conversion.convert import Conversion, convert

    conversion = Conversion(
        recipe=options.recipe,
        assignments=tuple(options.set),
        masks=options.masks,
        vocab_size=options.vocab_size,
        tokenizer=options.tokenizer,
        to=options.to,
    )
    model = convert(Path(options.source), Path(options.output), conversion)
    numbers = sum(tensor.numel() for tensor in model.state.values())
    print(f"{options.output}: {numbers:,} parameters, {model.vocabulary.size:,} rows of tokens")
