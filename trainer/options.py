"""Options of the commands about recipes and models, and words that several settings and functions accept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from corpora.options import Flag
from corpora.reporting import TableFormat

Precision = Literal["fp32", "bf16"]
Device = Literal["auto", "cpu", "cuda"]
Checkpointing = Literal["none", "selective", "layer"]
"""Activations that the backward pass recomputes."""
ParallelMode = Literal["ddp", "fsdp", "hybrid"]
Reduction = Literal["step", "micro_batch"]
"""Times at which gradients are reduced over the ranks."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of ``farspan train``.

    A run is the folder run.directory, with metrics.jsonl and checkpoints. The same command starts the run, resumes it
    after Ctrl-C, SIGTERM or a crash, and does nothing once all steps are done. Settings that affect the results must
    stay the same when a run resumes; its location, micro-batches, checkpoints, metrics and evaluation may change.

    Your own recipe may begin with `extends = "bart_ls_base"` and hold only the differences. docs/training.md describes
    the sections; an unknown key is reported with the known ones.

    Attributes:
        recipe: a packaged recipe by name (tiny, bart_ls_base, ...), or a TOML file.
        assignments: override a key; repeatable.
        estimate: print what the run takes, and stop: memory of a step, operations, hours of GPUs, and, if the recipe
            names data, time on this machine from ten seconds of updates. A recipe without data needs the number of rows
            of its token table; 0, as without a number, takes the rows that the data need.

    Examples:
        farspan train tiny --set data.corpus=corpus --set data.masks=masks --set run.directory=run
        farspan train tiny --set data.corpus=corpus --set data.objective.name=span --set data.objective.preset=bart_ls
        farspan train my/recipe.toml --set run.micro_batch_size=1 --set run.activation_checkpointing=layer
        farspan train tiny --set data.corpus=corpus --set data.masks=masks --estimate
        farspan train bart_ls_base --estimate 50265
        torchrun --nproc-per-node 8 -m pipelines train bart_ls_base --set data.corpus=corpus --set data.masks=masks
    """

    recipe: Annotated[str, Flag(positional=True)]
    assignments: Annotated[tuple[str, ...], Flag(name="set", metavar="KEY=VALUE")] = ()
    estimate: Annotated[int | None, Flag(metavar="ROWS", least=0, bare=0)] = None


@dataclass(frozen=True, kw_only=True)
class Recipes(TableFormat):
    """Options of ``farspan recipes``.

    Parameters are counted without the rows of tokens, whose number depends on the tokenizer.

    Attributes:
        recipe: a packaged recipe by name, or a TOML file (default: list them all).

    Examples:
        farspan recipes
        farspan recipes bart_ls_base
        farspan recipes --csv
    """

    recipe: Annotated[str | None, Flag(positional=True)] = None


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """Options of ``farspan convert``.

    Attributes:
        recipe: recipe whose model the source is adapted to, a name or a TOML file (default: no change).
        assignments: overrides a key of the recipe, or of the model if there is none
            (model.encoder.positions.count=4096).
        masks: mask set whose special tokens are added to the model.
        vocab_size: number of rows of the token table, instead of --masks.
        tokenizer: the model's tokenizer, if its folder has none.
        to: format to write.
        checkpoint: checkpoint of a run: newest, best (by checkpoint.best of its recipe) or a step (default: newest).
    """

    recipe: Annotated[str | None, Flag(metavar="NAME")] = None
    assignments: Annotated[tuple[str, ...], Flag(name="set", metavar="KEY=VALUE")] = ()
    masks: Annotated[str | None, Flag(metavar="DIR")] = None
    vocab_size: Annotated[int | None, Flag(metavar="N")] = None
    tokenizer: Annotated[str | None, Flag(metavar="PATH")] = None
    to: Literal["farspan", "huggingface"] = "farspan"
    checkpoint: Annotated[str | None, Flag(metavar="WHICH")] = None


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Arguments of ``farspan convert``.

    With --recipe a short model is extended to the recipe's long model: positions are tiled, global projections copied,
    and the output of pooled attention starts at zero. For inputs within the short model's length the long model has the
    same logits. Widths, layers and all other parts must be equal; differences are listed.

    With --masks the token table gets a row for each special token of the mask set. New rows are copies of the mask
    token's row plus noise. Without --masks, missing tokens are added when training begins.

    To continue training from the output: --set run.initial_model=FOLDER.

    Attributes:
        source: model folder of Hugging Face or farspan, or a run.
        output: folder to create; it must not exist.
        conversion: changes to the model.

    Examples:
        farspan convert bart-base bart-ls --recipe bart_ls_base --masks masks
        farspan train bart_ls_base --set run.initial_model=bart-ls --set data.corpus=corpus --set data.masks=masks
        farspan convert bart-base led --recipe led_base --set model.dropout=0.0
        farspan convert run led-trained --tokenizer tokenizer --to huggingface
    """

    source: Annotated[str, Flag(positional=True)]
    output: Annotated[str, Flag(positional=True)]
    conversion: Conversion = Conversion()
