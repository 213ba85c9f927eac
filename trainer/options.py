"""Options of the commands about recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from corpora.options import Flag


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of ``farspan train`` and ``python -m trainer``.

    A run is the folder run.directory, with metrics.jsonl and checkpoints. The same command starts the run, resumes it
    after Ctrl-C, SIGTERM or a crash, and does nothing once all steps are done. Settings that affect the results must
    stay the same when a run resumes; its location, micro-batches, checkpoints, metrics and evaluation may change.

    Your own recipe may begin with `extends = "bart_ls_base"` and hold only the differences. docs/training.md describes
    the sections; an unknown key is reported with the known ones.

    Attributes:
        recipe: a packaged recipe by name (tiny, bart_ls_base, ...), or a TOML file.
        assignments: override a key; repeatable.
        estimate: print the memory of a step with this number of rows in the token table, and stop; reads no data.

    Examples:
        farspan train tiny --set data.corpus=corpus --set data.masks=masks --set run.directory=run
        farspan train tiny --set data.corpus=corpus --set data.objective.name=span --set data.objective.preset=bart_ls
        farspan train my/recipe.toml --set run.micro_batch_size=1 --set run.activation_checkpointing=layer
        farspan train bart_ls_base --estimate 50265
        torchrun --nproc-per-node 8 -m trainer bart_ls_base --set data.corpus=corpus --set data.masks=masks
    """

    recipe: Annotated[str, Flag(positional=True)]
    assignments: Annotated[tuple[str, ...], Flag(name="set", metavar="KEY=VALUE")] = ()
    estimate: Annotated[int | None, Flag(metavar="ROWS")] = None


@dataclass(frozen=True, kw_only=True)
class Recipes:
    """Options of ``farspan recipes``.

    Attributes:
        recipe: a packaged recipe by name, or a TOML file (default: list them all).

    Examples:
        farspan recipes
        farspan recipes bart_ls_base
    """

    recipe: Annotated[str | None, Flag(positional=True)] = None
