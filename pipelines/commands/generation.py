"""Predictions: ``farspan generate``."""

from __future__ import annotations

from pipelines.commands.command import Command, Typed
from pipelines.flags import make
from trainer.parallel.reports import raised_alike


def _generate(typed: Typed) -> None:
    from pipelines.generate import generate
    from pipelines.generate_options import Generating
    from pipelines.inspect.stats import summary
    from trainer.parallel.distributed import is_first

    with raised_alike():
        options = make(Generating, typed)
    manifest = generate(options)
    if is_first():
        print(f"{typed.output}: {summary(manifest)}")


COMMANDS = (
    Command(
        name="generate",
        summary="Generate a text for each pair of a split.",
        options=("pipelines.generate_options:Generating",),
        run=_generate,
        epilog="""\
The task and the options of generation are those of the run; --set and --generation override single ones. A folder has
neither, so name the task. A stopped command is resumed by the same command, with any number of processes.
OUTPUT/predictions.json has the texts by pair id.

examples:
  farspan generate run --pairs pairs --output predictions --checkpoint best
  farspan generate run --pairs pairs --split test --output predictions --generation beams=8
  farspan generate led-arxiv --task led --pairs pairs --output predictions --generation max_tokens=512
  torchrun --nproc-per-node 8 -m pipelines generate run --pairs pairs --output predictions
""",
    ),
)
