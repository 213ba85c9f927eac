"""What a run opens and checks before its first update: data of all stages, held-out data, the model."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from corpora.errors import FarspanError
from corpora.storage.shards import ShardedRows
from objectives.api.special_tokens import SpecialTokens
from trainer.checkpoint.trained_model import vocabulary_of
from trainer.conversion.convert import initial_model
from trainer.conversion.model_folder import weights_sha256
from trainer.conversion.vocabulary import Vocabulary
from trainer.data.config import DataConfig, Source, SourceConfig
from trainer.data.curriculum import Stage
from trainer.data.example_checks import check_examples
from trainer.data.mixture import Mixture, Part
from trainer.model.build import build_model, make_model
from trainer.model.config import ModelConfig
from trainer.model.joint import JointModel
from trainer.model.masked_lm import MaskedLM
from trainer.model.pattern import Pattern
from trainer.model.seq2seq import Seq2Seq
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run.evaluation import HeldOut
from trainer.run.joint import Candidates, Generator, open_joint
from trainer.run.sources import check_sample, check_start, open_source, open_stages


@dataclass(frozen=True)
class Training:
    """What a run is trained on.

    Attributes:
        mixtures: of each stage; all have the same special tokens.
        generator: that is trained beside the model; None without joint training.
    """

    mixtures: Sequence[Mixture]
    generator: Generator | None = None

    @property
    def special(self) -> SpecialTokens:
        return self.mixtures[0].special

    @property
    def tokenizer_fingerprint(self) -> str:
        return self.mixtures[0].tokenizer_fingerprint


def open_training(recipe: Recipe, source: Source | None = None) -> Training:
    """Open the data of all stages.

    Args:
        recipe: whose data is opened.
        source: instead, for all stages.

    Raises:
        FarspanError: data that cannot be read or does not suit the model; attention of a stage for which the model has
            not the weights.
    """
    stages, verify = recipe.all_stages, recipe.loading.verify == "lazily"
    _check_attention(recipe.model, stages)
    generator: Generator | None = None
    if source is not None:
        mixtures = [Mixture.of(source)] * len(stages)
    elif recipe.generator and recipe.generator.mode == "joint":
        mixtures, generator = open_joint(stages, recipe.generator, recipe.run.seed, verify=verify)
    else:
        mixtures = open_stages(stages, verify=verify)
    for stage, mixture in zip(stages, mixtures, strict=True):
        if recipe.model.decoder:
            check_start(mixture.special, stage.data)
        if generator is None:  # else the examples are the generator's, which has no decoder
            _check_kind(recipe.model, mixture, stage.section)
    return Training(mixtures, generator)


def open_held_out(recipe: Recipe, trained: Training, source: Source | None = None) -> list[HeldOut]:
    """What the recipe's evaluation section measures; nothing where it has none.

    Args:
        recipe: whose held-out data is opened.
        trained: whose special tokens the model knows.
        source: instead.

    Raises:
        FarspanError: data that cannot be read, or that does not suit the model.
    """
    evaluation, data = recipe.evaluation, recipe.data
    if evaluation is None:
        return []
    if evaluation.mixture:
        data = replace(data, corpus="", masks=None, masks_options={}, objective=None, mixture=evaluation.mixture)
    else:
        objective = None if evaluation.masks else data.objective
        if objective and trained.generator:
            raise FarspanError(
                "evaluation.corpus stands without masks, and what joint training hides changes as the generator "
                "learns; give evaluation.masks, or evaluation.mixture with an objective that has a scorer or needs none"
            )
        data = replace(data, corpus=evaluation.corpus, masks=evaluation.masks, objective=objective, mixture=())
    if source is None:
        opened = open_source(data, verify=recipe.loading.verify == "lazily", section="evaluation")
    else:
        opened = Mixture.of(source)
    _check_kind(recipe.model, opened, "evaluation")
    if opened.tokenizer_fingerprint != trained.tokenizer_fingerprint:
        raise FarspanError(
            f"the held-out data has the tokenizer with fingerprint {opened.tokenizer_fingerprint}, the training data "
            f"{trained.tokenizer_fingerprint}; make both with one tokenizer"
        )
    known = opened.with_special(trained.special)
    if known.special != opened.special:  # the model may know fewer sentinels
        check_sample(known, data, "evaluation")
    rows = min(recipe.run.micro_batch_size, recipe.run.batch_size)  # no more than the dry run tries
    return [HeldOut(part.name, part.source, data, evaluation.sequences, rows) for part in known.parts]


def check_data(recipe: Recipe, trained: Training, held_out: Sequence[HeldOut]) -> list[str]:
    """Look at the examples of all stages, and at the held-out ones, for what would go wrong later.

    Returns:
        Warnings.

    Raises:
        FarspanError: as ``check_examples``.
    """
    warnings: list[str] = []
    seen: list[tuple[DataConfig, Pattern]] = []
    for stage, mixture in zip(recipe.all_stages, trained.mixtures, strict=True):
        if (stage.data, stage.attention) not in seen:
            seen.append((stage.data, stage.attention))
            warnings += check_examples(mixture, stage.data, stage.attention, stage.section)
    for part in held_out:
        mixture = Mixture([Part(part.name, part.source)])
        warnings += check_examples(mixture, part.data, recipe.model.encoder.attention, "evaluation", part.sequences)
    return warnings


def check_shards(recipe: Recipe, world: World, console: Console) -> None:
    """Compare every shard that the recipe names with its checksum, each rank its share of them, before one is read.

    What is not there at all, or not as long as it should be, is left to those who open it.

    Args:
        console: for a progress bar, if it is a terminal.

    Raises:
        FarspanError: a shard that is damaged; all ranks raise it.
    """
    sources = [source for stage in recipe.all_stages for source in stage.data.sources]
    if held_out := recipe.evaluation:
        sources += [*held_out.mixture, SourceConfig(name="held out", corpus=held_out.corpus, masks=held_out.masks)]
    named = [(source.corpus, "farspan.corpus") for source in sources if source.corpus]
    named += [(source.masks, "farspan.masks") for source in sources if source.masks]
    shards = [(rows, shard) for rows in _there(named) for shard in range(len(rows.manifest.shards))]
    share, fault = shards[world.rank :: world.size], None
    try:
        for rows, shard in track(share, "checksums", console=console, transient=True, disable=not console.is_terminal):
            rows.check_shard(shard)
    except FarspanError as error:
        fault = str(error)
    if found := next(filter(None, world.gather(fault)), None):
        raise FarspanError(found)


def _there(named: Iterable[tuple[str, str]]) -> list[ShardedRows]:
    """Of folders and formats, each once, those whose files are there."""
    found = []
    for folder, kind in dict.fromkeys(named):
        with suppress(FarspanError):
            rows = ShardedRows(folder, kind)
            rows.check_files()
            found.append(rows)
    return found


def begin_model(recipe: Recipe, trained: Training) -> Seq2Seq | MaskedLM:
    """The model before the first update: its weights drawn, or those of ``run.initial_model``; with its generator."""
    model = build_model(recipe.model, trained.special.vocab_size, recipe.run.seed)
    if recipe.run.initial_model:
        vocabulary = Vocabulary.of(trained.special, trained.tokenizer_fingerprint, recipe.data.decoder_start)
        model.load_state_dict(initial_model(Path(recipe.run.initial_model), recipe.model, vocabulary).state)
    if trained.generator is None:
        return model
    assert recipe.generator is not None
    assert isinstance(model, Seq2Seq)
    return JointModel(model, trained.generator.model, recipe.generator.weight)


def run_identity(recipe: Recipe, trained: Training) -> dict[str, Any]:
    """What must be equal for a run to be continued: of the recipe, the data and the initial weights."""
    identity = {
        **recipe.identity(),
        "corpus": {
            part.name if len(trained.mixtures) == 1 else f"{number}.{part.name}": {
                "fingerprint": part.source.fingerprint,
                "sequences": len(part.source),
                "weight": part.weight,
            }
            for number, mixture in enumerate(trained.mixtures)
            for part in mixture.parts
        },
    }
    if any(len(mixture.parts) > 1 for mixture in trained.mixtures):  # sources of one weight take turns as they stand
        identity["sources"] = [[part.name for part in mixture.parts] for mixture in trained.mixtures]
    if recipe.run.initial_model:
        identity["initial_model"] = weights_sha256(Path(recipe.run.initial_model))
    if trained.generator:
        identity["initial_generator"] = trained.generator.identity
    return identity


def run_vocabulary(trained: Training) -> dict[str, Any]:
    """What checkpoints record of the ids of the model; under ``generator``, of its generator's and of its sizes too."""
    mixture, generator, row = trained.mixtures[0], trained.generator, np.zeros(1, np.int64)
    if generator is None:
        return vocabulary_of(mixture.tokenizer_fingerprint, mixture.special, mixture.examples(row))
    (candidates,) = (part.source for part in mixture.parts)
    assert isinstance(candidates, Candidates)
    shown = candidates.examples(row)
    chosen = candidates.chosen(row, np.zeros(shown.source_ids.shape))
    own = vocabulary_of(mixture.tokenizer_fingerprint, generator.special, shown)
    return {
        **vocabulary_of(mixture.tokenizer_fingerprint, mixture.special, chosen),
        "generator": {"model": asdict(generator.model.config), **own},
    }


def _check_kind(model: ModelConfig, mixture: Mixture, section: str) -> None:
    """Whether the model can answer what the examples ask."""
    encoder_only = mixture.examples(np.zeros(1, np.int64)).labels is not None
    if encoder_only and model.decoder:
        raise FarspanError(
            f"{section}: the objective asks for masked tokens in place; remove the recipe's model.decoder section, as "
            "--set model.decoder=none does, or give another objective"
        )
    if not encoder_only and not model.decoder:
        raise FarspanError(
            f"{section}: the objective asks for a target text; add a model.decoder section to the recipe, or give "
            "another objective"
        )


def _check_attention(model: ModelConfig, stages: Sequence[Stage]) -> None:
    """Whether the weights of the model serve the attention of every stage."""
    known = _weights(model)
    for number, stage in enumerate(stages):
        if stage.attention == model.encoder.attention:
            continue
        asked = _weights(replace(model, encoder=replace(model.encoder, attention=stage.attention)))
        if asked != known:
            name = min(asked.symmetric_difference(known))[0]
            raise FarspanError(
                f"stages[{number}].attention is {stage.attention.pattern!r}, which differs from "
                f"model.encoder.attention {model.encoder.attention.pattern!r} in weights ({name}); choose one with the "
                "same weights"
            )


def _weights(model: ModelConfig) -> set[tuple[str, tuple[int, ...]]]:
    """Names and shapes, for a vocabulary of one."""
    with torch.device("meta"):
        return {(name, tuple(value.shape)) for name, value in make_model(model, 1).state_dict().items()}


def keep_tokenizer(recipe: Recipe, directory: Path) -> None:
    """Copy the tokenizer of the recipe's data into the run's ``directory``, so that its model can be exported whole."""
    tokenizer = Path(recipe.all_stages[0].data.sources[0].corpus) / "tokenizer"
    if tokenizer.is_dir():
        shutil.copytree(tokenizer, directory / "tokenizer", dirs_exist_ok=True)
