"""The unit of training: the data, the model, and what one micro-batch contributes to a step.

The training loop, start-up, dry run and memory estimate know a unit through ``TrainUnit`` alone. A new kind of training
is a subclass in a file of its own and its line in ``units.py``.

``model`` is always what ``build_model`` returned, on its device, sharded under FSDP. All encoder and decoder layers in
it, those of further modules included, are checkpointed, compiled and sharded one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from corpora.errors import FarspanError
from objectives.api.special_tokens import SpecialTokens
from trainer.checkpoint.trained_model import vocabulary_of
from trainer.conversion.convert import initial_model
from trainer.conversion.sources import model_sha256
from trainer.conversion.vocabulary import Vocabulary
from trainer.data.batch import Batch, Batches
from trainer.data.config import DataConfig, Source
from trainer.data.curriculum import Stage, stage_number
from trainer.data.loader import Loader
from trainer.data.mixture import Mixture
from trainer.data.shards_ahead import ShardsAhead
from trainer.metrics import Counts
from trainer.model.build import build_model
from trainer.model.config import ModelConfig
from trainer.model.loss import LossConfig, Losses
from trainer.model.masked_lm import MaskedLM
from trainer.model.seq2seq import Seq2Seq
from trainer.optim.optimizer import build_optimizer
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run.evaluation import HeldOut, evaluate, metric_names
from trainer.run.sources import check_sample, open_source, open_stages

Model = Seq2Seq | MaskedLM
"""A model that can be trained, subclasses included: it has a token table ``tokens`` and an ``encoder``."""


class ModelSize(NamedTuple):
    """One of the models that a unit trains, for the memory estimate.

    Attributes:
        config: the model.
        targets: positions per sequence that its loss is computed at.
        passes: forward passes of a batch whose activations are saved together.
    """

    config: ModelConfig
    targets: int
    passes: int = 1


class TrainUnit(ABC):
    """One model, trained on the data that a recipe names. Subclasses say what their training does differently.

    Attributes:
        recipe: recipe of the run, with a number of steps.
        mixtures: what the model is shown in each stage of the curriculum, all with the same special tokens.
    """

    def __init__(self, recipe: Recipe, mixtures: Sequence[Mixture] = ()) -> None:
        self.recipe, self.mixtures = recipe, mixtures

    # What is known without data.

    @classmethod
    @abstractmethod
    def sizes(cls, recipe: Recipe, stage: Stage) -> list[ModelSize]:
        """The models that are trained together in ``stage``."""

    @property
    def curriculum(self) -> Sequence[Stage]:
        """The stages of the run; the last one ends it."""
        return self.recipe.curriculum

    @property
    def steps(self) -> int:
        """Updates of the whole run."""
        return self.curriculum[-1].last_step

    @property
    def ends(self) -> frozenset[int]:
        """The last step of the run, and those of its shorter lengths before it was extended."""
        base = len(self.curriculum) - len(self.recipe.run.extend)
        return frozenset(stage.last_step for stage in self.curriculum[base - 1 :])

    def stage_at(self, step: int) -> Stage:
        """The stage of update ``step``, counted from 0."""
        return self.curriculum[stage_number(self.curriculum, step)]

    # Data.

    @classmethod
    def open(cls, recipe: Recipe, source: Source | None = None) -> Self:
        """Open the training data of every stage.

        Args:
            recipe: recipe of the run.
            source: used for every stage instead of the sources that the recipe names.

        Raises:
            FarspanError: data that cannot be read or does not suit the model.
        """
        stages = recipe.curriculum
        if source is None:
            mixtures = open_stages(stages, verify=recipe.loading.verify == "lazily", cache=recipe.loading.cache)
        else:
            mixtures = [Mixture.of(source)] * len(stages)
        unit = cls(recipe.with_samples(len(mixtures[0])), mixtures)
        unit.check_data()
        return unit

    def check_data(self) -> None:
        """Check that the data of every stage suits the model.

        Raises:
            FarspanError: it does not.
        """
        for stage, mixture in zip(self.curriculum, self.mixtures, strict=True):
            self.check_examples(mixture, stage.data, stage.section)

    @abstractmethod
    def check_examples(self, mixture: Mixture, data: DataConfig, section: str) -> None:
        """Check that the model can be trained or evaluated on the examples of ``mixture``.

        Raises:
            FarspanError: naming ``section`` of the recipe.
        """

    @property
    def special(self) -> SpecialTokens:
        """The special tokens that the model knows."""
        return self.mixtures[0].special

    @property
    def tokenizer_fingerprint(self) -> str:
        """The tokenizer of all data."""
        return self.mixtures[0].tokenizer_fingerprint

    def loader(self, rank: int, world_size: int) -> Loader:
        """The loader of one rank."""
        seed = self.recipe.run.seed
        ahead = ShardsAhead.of(self.curriculum, self.mixtures, seed)
        return Loader(self.curriculum, self.mixtures, seed, rank, world_size, ahead)

    def batches(self, loader: Loader, prefetched: Batches, model: Model, world: World) -> Batches:
        """Turn the loader's batches into those that ``losses`` takes.

        Args:
            loader: loader of this rank.
            prefetched: its batches, perhaps made ahead.
            model: the model as it is trained.
            world: all processes of the run; all of them ask for the batches of a step.
        """
        return prefetched

    # Model.

    def build_model(self) -> Model:
        """Build the model before the first update, in float32 on the CPU.

        Its weights are drawn, or those of ``run.initial_model``.
        """
        recipe = self.recipe
        model = build_model(recipe.model, self.special.vocab_size, recipe.run.seed)
        if recipe.run.initial_model:
            vocabulary = Vocabulary.of(self.special, self.tokenizer_fingerprint, recipe.data.decoder_start)
            path, checkpoint = Path(recipe.run.initial_model), recipe.run.initial_checkpoint
            model.load_state_dict(initial_model(path, recipe.model, vocabulary, checkpoint).state)
        return model

    def build_optimizer(self, model: Model) -> Optimizer:
        """The optimizer and its parameter groups, for the model as it is trained."""
        return build_optimizer(model, self.recipe.optimizer)

    # Step.

    def losses(self, model: nn.Module, batch: Batch, loss: LossConfig) -> Losses:
        """The forward pass of one micro-batch.

        Args:
            model: the model, perhaps inside DDP.
            batch: micro-batch on the model's device.
            loss: loss to be minimised.

        Returns:
            Sums over the target tokens.
        """
        return model(**batch.inputs, loss=loss)

    def counts(self, model: Model, batches: Sequence[Batch], stage: Stage) -> Counts:
        """Tokens, positions and floating-point operations of this rank's micro-batches of a step in ``stage``."""
        return Counts.of(batches, stage.model(self.recipe.model), model.tokens.num_embeddings)

    def metrics(self, batches: Sequence[Batch]) -> Mapping[str, float]:
        """Further metrics of the step with these micro-batches, the same on every rank."""
        return {}

    # Evaluation.

    def open_held_out(self, source: Source | None = None) -> list[HeldOut]:
        """Open the data that ``evaluate`` measures; none if the recipe has no evaluation section.

        Args:
            source: used instead of the sources that the recipe names.

        Raises:
            FarspanError: data that cannot be read or does not suit the model.
        """
        recipe, data = self.recipe, self.recipe.held_out_data
        if recipe.evaluation is None or data is None:
            return []
        if source is None:
            verify, cache = recipe.loading.verify == "lazily", recipe.loading.cache
            opened = open_source(data, verify=verify, section="evaluation", cache=cache)
        else:
            opened = Mixture.of(source)
        self.check_examples(opened, data, "evaluation")
        if opened.tokenizer_fingerprint != self.tokenizer_fingerprint:
            raise FarspanError(
                f"the held-out data has the tokenizer with fingerprint {opened.tokenizer_fingerprint}, the training "
                f"data {self.tokenizer_fingerprint}; make both with one tokenizer"
            )
        known = opened.with_special(self.special)
        if known.special != opened.special:  # the model may know fewer sentinels
            check_sample(known, data, "evaluation")
        rows = min(recipe.run.micro_batch_size, recipe.run.batch_size)  # no more than the dry run tries
        return [HeldOut(part.name, part.source, data, recipe.evaluation.sequences, rows) for part in known.parts]

    def evaluate(
        self, model: Model, loss: Callable[[Batch], Tensor], held_out: Sequence[HeldOut], world: World
    ) -> dict[str, Any]:
        """The metrics of an evaluation; all ranks call this together.

        Args:
            model: the model as it is trained.
            loss: cross-entropy of a batch, summed over its target tokens.
            held_out: data of ``open_held_out``.
            world: all processes of the run.
        """
        return evaluate(model, loss, held_out, world)

    def evaluated_metrics(self, held_out: Sequence[HeldOut]) -> list[str]:
        """The names of the numbers among ``evaluate``'s results."""
        return metric_names(held_out)

    # Checkpoint.

    def identity(self) -> dict[str, Any]:
        """JSON values of recipe, data and initial weights that must not change while a run is continued."""
        recipe = self.recipe
        mixtures = self.mixtures[: len(self.mixtures) - len(recipe.run.extend)]
        identity = {
            **recipe.identity(),
            "corpus": {
                part.name if len(mixtures) == 1 else f"{number}.{part.name}": {
                    "fingerprint": part.source.fingerprint,
                    "sequences": len(part.source),
                    "weight": part.weight,
                    **({"shuffle_shards": part.shuffle_shards} if part.shuffle_shards else {}),
                }
                for number, mixture in enumerate(mixtures)
                for part in mixture.parts
            },
        }
        if any(len(mixture.parts) > 1 for mixture in mixtures):  # sources of equal weight alternate in this order
            identity["sources"] = [[part.name for part in mixture.parts] for mixture in mixtures]
        if recipe.run.initial_model:
            path = Path(recipe.run.initial_model)
            identity["initial_model"] = model_sha256(path, recipe.run.initial_checkpoint)
        return identity

    def vocabulary(self) -> dict[str, Any]:
        """The record that a checkpoint keeps of the model's token ids."""
        return vocabulary_of(self.tokenizer_fingerprint, self.special, self.mixtures[0].examples(np.zeros(1, np.int64)))

    # Dry run.

    @abstractmethod
    def largest_batch(self, stage: Stage, vocab_size: int) -> Batch:
        """The micro-batch of ``stage`` that needs the most memory: full width, no padding, the first position global.

        Args:
            vocab_size: rows of the token table.
        """


def has_labels(mixture: Mixture) -> bool:
    """True if the examples of ``mixture`` have labels in place, False if they have a target text."""
    return mixture.examples(np.zeros(1, np.int64)).labels is not None


def random_ids(vocab_size: int, *shapes: tuple[int, int]) -> list[Tensor]:
    """Random token ids of each shape, int32, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(vocab_size, shape, generator=generator, dtype=torch.int32) for shape in shapes]
