"""Training: ``farspan train``."""

from __future__ import annotations

from typing import Any

from pipelines.commands.shared import command
from trainer.command import add_arguments, run_command


def add_train(commands: Any) -> None:
    parser = command(
        commands,
        "train",
        "Train a model from a corpus and a mask set; an interrupted run resumes.",
        run_command,
        """\
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
    )
    add_arguments(parser)
