"""Setup of a run before its first update: opening of its data, checks of data and model, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from corpora.errors import FarspanError
from corpora.printing import format_count
from corpora.reporting import Reporting, current
from corpora.schemas.pairs import PairSet
from corpora.storage.files import is_local
from corpora.storage.sharded_rows import ShardedRows
from trainer.checkpoint.run_files import RECIPE, SUMMARY
from trainer.data.config import DataConfig, Source, SourceConfig
from trainer.data.curriculum import Stage
from trainer.data.example_checks import check_examples
from trainer.data.mixture import Mixture, Part
from trainer.data.packed import PackedPairs
from trainer.model.build import make_model
from trainer.model.config import ModelConfig
from trainer.model.pattern import Pattern
from trainer.parallel.distributed import World, on_every_rank, run_together
from trainer.recipe import Recipe
from trainer.run.display import Display
from trainer.run.evaluation import Evaluations, HeldOut
from trainer.run.units import open_unit
from trainer.run.units.unit import TrainUnit


def open_data(
    recipe: Recipe, world: World, source: Source | None, held_out: Source | None, display: Display
) -> tuple[TrainUnit, Evaluations]:
    """Check the recipe's model, open the training data and the held-out data, check both, and show all warnings.

    An error on one rank is raised on all.
    """
    curriculum, evaluated = recipe.curriculum, recipe.held_out_data

    def check_model() -> None:
        check_attention(recipe.model, curriculum)
        check_packing(curriculum)

    on_every_rank(world, check_model)
    if source is None and recipe.loading.verify == "start":
        trained = [source for stage in curriculum for source in stage.data.sources]
        check_shards([*trained, *(evaluated.sources if evaluated else ())], world, display.console)

    def open_here() -> tuple[TrainUnit, Evaluations]:
        unit = open_unit(recipe, source)
        evaluations = Evaluations.open(unit, held_out)
        for warning in [*check_data(unit, evaluations.held_out), *list_warnings(unit, recipe.run.epochs)]:
            display.warn(warning)
        for message in describe_consequences(unit, recipe.run.epochs):
            display.say(message)
        return unit, evaluations

    return on_every_rank(world, open_here)


def check_data(unit: TrainUnit, held_out: Sequence[HeldOut]) -> list[str]:
    """Check the examples of all stages and of the held-out data for faults that would show late; return warnings."""
    warnings: list[str] = []
    seen: list[tuple[DataConfig, Pattern]] = []
    for stage, mixture in zip(unit.curriculum, unit.mixtures, strict=True):
        if (stage.data, stage.attention) not in seen:
            seen.append((stage.data, stage.attention))
            warnings += check_examples(mixture, stage.data, stage.attention, stage.section)
    for part in held_out:
        mixture = Mixture([Part(part.name, part.source)])
        attention = unit.recipe.model.encoder.attention
        warnings += check_examples(mixture, part.data, attention, "evaluation", part.sequences)
    return warnings


def list_warnings(unit: TrainUnit, epochs: float | None) -> Iterator[str]:
    """Yield warnings of settings that are allowed but seldom meant: repeated data, noise that rounding removes."""
    recipe = unit.recipe
    if epochs is None:
        yield from _repetitions(unit)
    initial = Path(recipe.run.initial_model or "")
    if recipe.run.initial_model and (initial / RECIPE).is_file() and not (initial / SUMMARY).is_file():
        yield f"run.initial_model {initial} is an unfinished run; this one begins with the checkpoint that it has now"
    if recipe.loss.r3f and recipe.run.precision == "bf16" and recipe.parallel.mode != "ddp":
        yield (
            f"parallel.mode {recipe.parallel.mode} with run.precision bf16 rounds away most of noise as small as "
            f"loss.r3f.eps, {recipe.loss.r3f.eps:g}; ddp and fp32 keep it up to the first layer"
        )


def describe_consequences(unit: TrainUnit, epochs: float | None) -> Iterator[str]:
    """Yield consequences of a recipe as messages: steps of epochs, packed rows, costs of R3F, extensions."""
    recipe = unit.recipe
    if epochs is not None:
        passes = f"{format_count(epochs, 'epoch')} of {format_count(len(unit.mixtures[0]), 'sequence')}"
        yield f"{passes}: {format_count(recipe.run.steps or 0, 'update')} of {recipe.run.batch_size}"
    for stage, mixture in zip(unit.curriculum, unit.mixtures, strict=True):
        for part in mixture.parts:
            if isinstance(part.source, PackedPairs):
                yield _describe_packing(part.name, part.source, stage.micro_batch_size)
    if recipe.loss.r3f:
        yield "loss.r3f passes every batch twice: an update takes twice the time, its activations twice the memory"
    base = len(unit.curriculum) - len(recipe.run.extend)
    for before, stage in pairwise(unit.curriculum[base - 1 :]):
        schedule = stage.schedule
        if schedule.ends_with_run:
            meaning = f"is that of a run of {stage.schedule_steps:,} updates"
        else:
            length = f" of {schedule.steps:,} updates" if schedule.steps else ""
            meaning = f"follows its {schedule.shape} schedule{length}"
        last = f"{before.learning_rate_at(stage.first_step - 1):.2e}"
        first, end = (f"{stage.learning_rate_at(step):.2e}" for step in (stage.first_step, stage.last_step - 1))
        yield (
            f"extended from {stage.first_step:,} to {stage.last_step:,} steps: from step {stage.first_step + 1:,} on "
            f"the learning rate {meaning}: {first} after {last}, and {end} at the end"
        )


def _describe_packing(name: str, source: PackedPairs, rows: int) -> str:
    packed, plain = source.padding(rows)
    count = format_count(len(source.members.values), "example")
    return (
        f"{name}: {count} in {format_count(len(source), 'packed row')}, at most {source.most} in one; padding is "
        f"{packed[0]:.0%} of source and {packed[1]:.0%} of target positions, {plain[0]:.0%} and {plain[1]:.0%} in "
        f"batches of {rows} without packing"
    )


def _repetitions(unit: TrainUnit) -> Iterator[str]:
    """Yield a warning for each corpus that the run reads more than once (BART-LS, table 2, avoids it)."""
    for number, (stage, mixture) in enumerate(zip(unit.curriculum, unit.mixtures, strict=True)):
        if any(later.data == stage.data for later in unit.curriculum[number + 1 :]):
            continue
        paired = {source.name for source in stage.data.sources if source.pairs}
        total = sum(share.weight for share in mixture.shares)
        for share in mixture.shares:
            passes = stage.samples(stage.last_step).start * share.weight / total / share.size
            if passes > 1 and share.name not in paired:
                yield (
                    f"the run reads the {format_count(share.size, 'sequence')} of {share.name!r} {passes:.1f} "
                    "times; a larger corpus or fewer updates avoid repetitions"
                )


def check_shards(sources: Sequence[SourceConfig], world: World, console: Console) -> None:
    """Compare every local shard of ``sources`` with its checksum; the ranks divide the shards.

    Copies of remote shards are compared by each process that maps them. Artefacts that are missing or have files of
    the wrong size are reported by the code that opens them.
    """
    named = [(source.corpus, "farspan.corpus") for source in sources if source.corpus]
    named += [(source.masks, "farspan.masks") for source in sources if source.masks]
    for source in sources:
        with suppress(FarspanError):
            documents = PairSet(source.pairs, source.documents).documents.folder if source.pairs else ""
            named += [(source.pairs, "farspan.pairs"), (documents, "farspan.documents")] if documents else []
    named = [(folder, kind) for folder, kind in named if is_local(folder)]
    shards = [(rows, shard) for rows in _complete(named) for shard in range(len(rows.manifest.shards))]
    assigned = shards[world.rank :: world.size]

    def check() -> None:
        silent = not console.is_terminal or current() != Reporting()
        for rows, shard in track(assigned, "checksums", console=console, transient=True, disable=silent):
            rows.check_shard(shard)

    run_together(world, check)


def _complete(named: Iterable[tuple[str, str]]) -> list[ShardedRows]:
    """Open those artefacts, given by folder and format, that are complete; each once."""
    opened = []
    for folder, kind in dict.fromkeys(named):
        with suppress(FarspanError):
            rows = ShardedRows(folder, kind)
            rows.check_files()
            opened.append(rows)
    return opened


def check_attention(model: ModelConfig, curriculum: Sequence[Stage]) -> None:
    """Check that the attention of every stage has the weights of the model's."""
    known = _weights(model)
    for number, stage in enumerate(curriculum):
        if stage.attention == model.encoder.attention:
            continue
        needed = _weights(stage.model)
        if needed != known:
            name = min(needed.symmetric_difference(known))[0]
            raise FarspanError(
                f"stages[{number}].attention is {stage.attention.pattern!r}, which differs from "
                f"model.encoder.attention {model.encoder.attention.pattern!r} in weights ({name}); choose one with the "
                "same weights"
            )


def check_packing(curriculum: Sequence[Stage]) -> None:
    """Check that the encoder can give each pair of a packed row the result that it has alone."""
    for stage in curriculum:
        if not stage.data.packing:
            continue
        if stage.model.encoder.pooling:
            raise FarspanError(
                f"{stage.section}.packing is true, but model.encoder.pooling averages windows of the whole row; set it "
                "to false"
            )
        if stage.attention.unit is None:
            raise FarspanError(
                f"{stage.section}.packing is true, but attention pattern {stage.attention.pattern!r} depends on the "
                "length of the whole row; set it to false, or choose another pattern"
            )
        if stage.data.source_multiple % stage.attention.unit:
            raise FarspanError(
                f"{stage.section}.packing is true with source_multiple {stage.data.source_multiple}, but each pair "
                f"must begin with one of the blocks of {stage.attention.unit} positions of the attention pattern "
                f"{stage.attention.pattern!r}; set {stage.section}.source_multiple={stage.attention.unit}"
            )


def _weights(model: ModelConfig) -> set[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the weights with a vocabulary of one token."""
    with torch.device("meta"):
        return {(name, tuple(value.shape)) for name, value in make_model(model, 1).state_dict().items()}
