"""Models: ``farspan train``, ``recipes`` and ``convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.commands.command import Command, Typed
from pipelines.flags import add_flags, make
from trainer.command import add_arguments, run_command
from trainer.recipe_files import find_recipe, read_tables, summaries


def _declare_convert(parser: Any) -> None:
    from trainer.conversion.options import Conversion

    parser.add_argument("source", help="model folder of Hugging Face or farspan, or a run (its newest checkpoint)")
    parser.add_argument("output", help="folder to make; nothing is overwritten")
    add_flags(parser, Conversion)


def _convert(typed: Typed) -> None:
    from trainer.conversion.convert import convert
    from trainer.conversion.options import Conversion

    model = convert(Path(typed.source), Path(typed.output), make(Conversion, typed))
    numbers = sum(tensor.numel() for tensor in model.state.values())
    print(f"{typed.output}: {numbers:,} parameters, {model.vocabulary.size:,} rows of tokens")


def _declare_recipes(parser: Any) -> None:
    parser.add_argument("recipe", nargs="?", help="a packaged recipe by name, or a TOML file (default: list them all)")


def _recipes(typed: Typed) -> None:
    if typed.recipe is None:
        for name, summary in summaries().items():
            print(f"{name:24} {summary}")
        return
    path = find_recipe(typed.recipe)
    print(path.read_text("utf-8"), end="")
    for name in read_tables(typed.recipe)[1][1:]:
        print(f"# {path.name} is put over {name}: farspan recipes {name.removesuffix('.toml')}")


COMMANDS = (
    Command(
        name="recipes",
        summary="List the recipes, or print one.",
        declare=_declare_recipes,
        run=_recipes,
        epilog="examples:\n  farspan recipes\n  farspan recipes bart_ls_base",
    ),
    Command(
        name="convert",
        summary="Make a model folder from a model of Hugging Face, of a run, or of farspan; or a Hugging Face folder.",
        declare=_declare_convert,
        run=_convert,
        epilog="""\
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
    ),
    Command(
        name="train",
        summary="Train a model from a corpus and a mask set; an interrupted run resumes.",
        declare=add_arguments,
        run=run_command,
        epilog="""\
A run lies in the folder run.directory: metrics.jsonl, and checkpoints. The same command begins it, goes on after
Ctrl-C, SIGTERM or a crash, and does nothing when all steps are made. What would change its numbers cannot be changed on
the way; where it lies, its micro-batches, checkpoints, metrics and evaluation can.

A recipe of your own may begin with `extends = "bart_ls_base"` and say only what differs. docs/training.md tells what
the sections are for; a wrong key is answered with the keys that there are.

examples:
  farspan train tiny --set data.corpus=corpus --set data.masks=masks --set run.directory=run
  farspan train tiny --set data.corpus=corpus --set data.objective.name=span --set data.objective.preset=bart_ls
  farspan train my/recipe.toml --set run.micro_batch_size=1 --set run.activation_checkpointing=layer
  farspan train bart_ls_base --estimate 50265
  torchrun --nproc-per-node 8 -m trainer bart_ls_base --set data.corpus=corpus --set data.masks=masks
""",
    ),
)
