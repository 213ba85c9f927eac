"""The recipe's sections on the run itself and on evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from corpora.errors import FarspanError
from trainer.data.config import SourceConfig, require_names
from trainer.generation.config import GenerationConfig
from trainer.options import Checkpointing, Device, Precision

LENGTHS = ("steps", "epochs", "tokens")
"""Keys of the run section that give its length; a recipe has one of them."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The run itself.

    Attributes:
        directory: folder of metrics and checkpoints; a run found there is continued.
        steps: updates of the whole run; the learning rate decays over them, or over ``schedule.steps``.
        epochs: passes over the data, instead of ``steps``. The number of updates is that of all sequences of all
            sources times ``epochs``, divided by the batch size and rounded up. Sources of a mixture are still drawn by
            their weights.
        tokens: input tokens of the run, instead of ``steps``: as many updates, rounded up, as have so many source
            positions (``batch_size`` rows of ``data.source_length``). With stages, the sum of theirs (PEGASUS-X,
            table 4).
        extend: additional updates of a finished or unfinished run, a number for each extension: ``[2000]``, later
            ``[2000, 1000]``. The last stage is continued; see ``Recipe.curriculum`` for the learning rate.
        batch_size: sequences per update.
        micro_batch_size: sequences per forward pass.
        initial_model: model that training starts from: a run of ``farspan train`` or a checkpoint of it, a folder made
            by ``farspan convert``, or one of Hugging Face. Its token tables get rows for the special tokens of this
            run's data; everything else must equal the recipe's model section. None draws all weights.
        adopt_model: use the model of ``initial_model`` in place of the recipe's model section, of which only the
            dropouts count: so a recipe of fine-tuning suits any model, as published in one size. Without
            ``initial_model``, the section counts.
        initial_checkpoint: checkpoint of that run: ``newest`` (the default), ``best`` or a step. Name a step if
            that run is still training, because this run can only be continued with the same initial weights.
        seed: seed of weights, sample order and dropout; masks drawn on the fly use ``data.objective.seed``.
        precision: ``bf16`` computes in bfloat16 over float32 weights; ``fp32`` does not.
        activation_checkpointing: ``layer`` saves only the inputs of layers for the backward pass, ``selective`` also
            the results of matrix products and attention; everything else is recomputed.
        compile: compile each layer; the first update takes minutes longer. Compiled layers draw dropout differently, so
            a run cannot change this setting.
        device: ``cpu``, ``cuda``, or ``auto`` for CUDA if available.
        non_finite: ``skip`` leaves out updates whose loss or gradient is NaN or infinite, up to ``max_skipped`` in a
            row; ``abort`` stops at the first.
        max_skipped: consecutive updates that may be skipped.
        profile: first and last update to record, counted from 1: a trace for Perfetto and a table of the ten slowest
            operations, in ``profile/`` of the directory; recording slows these updates down.
        dry_run: pass the largest batch forward and backward before the first update, so that a run that lacks memory
            fails at once.
    """

    directory: str
    batch_size: int
    steps: int | None = None
    epochs: float | None = None
    tokens: int | None = None
    extend: tuple[int, ...] = ()
    micro_batch_size: int = 1
    initial_model: str | None = None
    initial_checkpoint: str | None = None
    adopt_model: bool = False
    seed: int = 42
    precision: Precision = "fp32"
    activation_checkpointing: Checkpointing = "none"
    compile: bool = False
    device: Device = "auto"
    non_finite: Literal["skip", "abort"] = "skip"
    max_skipped: int = 10
    profile: tuple[int, ...] = ()
    dry_run: bool = True

    def __post_init__(self) -> None:
        lengths = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(lengths) != 1:
            wrong = f"{' and '.join(lengths)} are" if lengths else f"none of {', '.join(LENGTHS)} is"
            raise FarspanError(f"run: {wrong} set; give one of them (to drop one from a recipe: run.steps=none)")
        for name in ("steps", "tokens", "batch_size", "micro_batch_size", "max_skipped"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FarspanError(f"run.{name} is {value}; it must be at least 1")
        if self.epochs is not None and not 0 < self.epochs < math.inf:
            raise FarspanError(f"run.epochs is {self.epochs}; it must be above 0 and finite")
        if min(self.extend, default=1) < 1:
            raise FarspanError(f"run.extend is {list(self.extend)}; each number of updates must be at least 1")
        if self.profile and not (len(self.profile) == 2 and 1 <= self.profile[0] <= self.profile[1]):
            raise FarspanError(
                f"run.profile is {list(self.profile)}; give the first and the last update to record, e.g. [20, 22]"
            )
        if not self.directory:
            raise FarspanError("run.directory is ''; name a folder, which need not exist yet")


@dataclass(frozen=True, kw_only=True)
class ValidationConfig(GenerationConfig):
    """Generation for held-out pairs, and the metric of its texts.

    Attributes:
        metrics: metric as in ``farspan evaluate --metrics``, e.g. ``scrolls:qasper``; its values are logged, and
            ``checkpoint.best`` may name one.
        every: steps between generations; None for every evaluation. The last step always has one.
        limit: number of pairs of each source, from the first of the split on.
        batch_positions: maximum number of encoder and decoder positions in a batch of one process.
    """

    metrics: str
    every: int | None = None
    limit: int = 256
    batch_positions: int = 1 << 16

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("every", "limit", "batch_positions"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FarspanError(f"evaluation.generation.{name} is {value}; it must be at least 1")

    @property
    def search(self) -> GenerationConfig:
        """The options of generation alone."""
        return GenerationConfig(**{field.name: getattr(self, field.name) for field in fields(GenerationConfig)})


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Loss on held-out sequences, masked as in training, or on held-out pairs, rendered as in training.

    Attributes:
        corpus, masks: as in the data section; without masks, its objective draws them.
        pairs, documents: as in the data section; without a corpus or a mixture, the data section's pairs are used.
        split: split of the pairs to evaluate on.
        mixture: several sources instead, each measured separately; their weights are not used.
        every: steps between evaluations; the last step is always evaluated.
        sequences: number of sequences of each corpus, from the first on.
        generation: generation for the held-out pairs, and the metric of its texts; None for the loss alone.
        patience: number of consecutive evaluations without improvement of the metric ``checkpoint.best`` that end the
            run; None to run all steps.
    """

    corpus: str = ""
    masks: str | None = None
    pairs: str = ""
    documents: str | None = None
    split: str = "validation"
    mixture: tuple[SourceConfig, ...] = ()
    every: int = 1000
    sequences: int = 256
    generation: ValidationConfig | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        for name in ("every", "sequences", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FarspanError(f"evaluation.{name} is {value}; it must be at least 1")
        if self.mixture and (self.corpus or self.masks or self.pairs):
            raise FarspanError(
                "evaluation.mixture conflicts with evaluation.corpus, masks or pairs; name the sources in one of the "
                "two ways"
            )
        if self.pairs and (self.corpus or self.masks):
            raise FarspanError("evaluation.pairs conflicts with evaluation.corpus or masks; give one of them")
        require_names(self.mixture, "evaluation")
