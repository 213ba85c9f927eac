"""The unit of training: data, model, and what a step counts.

Training loop, start-up, dry run and memory estimate use a unit only through ``TrainUnit``. A new kind of training is a
subclass in a file of this folder, and a line in ``__init__.py``.

``model`` is always the model of ``build_model`` on its device, sharded under FSDP. All its encoder and decoder layers,
also in further modules, are checkpointed, compiled and sharded one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from objectives.api.special_tokens import SpecialTokens
from trainer.checkpoint.trained_model import vocabulary_of
from trainer.conversion.convert import initial_model, model_sha256
from trainer.conversion.vocabulary import Vocabulary
from trainer.data.batch import Batch, Batches
from trainer.data.config import DataConfig, Source
from trainer.data.curriculum import Stage, stage_number
from trainer.data.loader import Loader, LoadingConfig, prefetch
from trainer.data.mixture import Mixture
from trainer.data.remote_shards import ShardsAhead
from trainer.metrics import Counts
from trainer.model.build import build_model
from trainer.model.config import GeneratorConfig, ModelConfig
from trainer.model.loss import LossConfig
from trainer.model.masked_lm import MaskedLM
from trainer.model.seq2seq import Seq2Seq
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run.sources import open_stages

Model = Seq2Seq | MaskedLM
"""A model that can be trained; it has a token table ``tokens`` and an ``encoder``."""


class ModelSize(NamedTuple):
    """One of the models that a unit trains, for the memory estimate."""

    config: ModelConfig
    targets: int  # positions per sequence at which its loss is computed
    passes: int = 1  # forward passes of a batch whose activations are saved together


class TrainUnit(ABC):
    """One model, trained on the data of a recipe; a subclass for each kind of training.

    Attributes:
        recipe: recipe of the run, with a number of steps.
        mixtures: training data of each stage of the curriculum, all with the same special tokens.
        named: True if the recipe names the data, so that other processes can open it too.
    """

    def __init__(self, recipe: Recipe, mixtures: Sequence[Mixture] = (), named: bool = False) -> None:
        self.recipe, self.mixtures, self.named = recipe, mixtures, named

    # Properties that need no data.

    @classmethod
    @abstractmethod
    def sizes(cls, stage: Stage, loss: LossConfig, generator: GeneratorConfig | None = None) -> list[ModelSize]:
        """Return the sizes of the models that are trained together in ``stage``, by the sections of a recipe."""

    @property
    def curriculum(self) -> Sequence[Stage]:
        """Stages of the run."""
        return self.recipe.curriculum

    @property
    def steps(self) -> int:
        """Number of updates of the whole run."""
        return self.curriculum[-1].last_step

    @property
    def ends(self) -> frozenset[int]:
        """Last steps of the run, now and before each extension."""
        base = len(self.curriculum) - len(self.recipe.run.extend)
        return frozenset(stage.last_step for stage in self.curriculum[base - 1 :])

    def stage_at(self, step: int) -> Stage:
        """Return the stage of update ``step``, counted from 0."""
        return self.curriculum[stage_number(self.curriculum, step)]

    # Data.

    @classmethod
    def open(cls, recipe: Recipe, source: Source | None = None) -> Self:
        """Open the training data of every stage: ``source``, or those that the recipe names."""
        unit = cls(recipe, named=source is None)
        unit.mixtures = unit.open_mixtures(recipe.loading, source)
        unit.recipe = recipe.with_samples(len(unit.mixtures[0]))
        for stage, mixture in zip(unit.curriculum, unit.mixtures, strict=True):
            unit.check_examples(mixture, stage.data, stage.section)
        return unit

    def open_mixtures(self, loading: LoadingConfig, source: Source | None) -> list[Mixture]:
        """Open a mixture for each stage of the curriculum."""
        if source is not None:
            return [Mixture.of(source)] * len(self.curriculum)
        return open_stages(self.curriculum, verify=loading.verify == "lazily", cache=loading.cache)

    @abstractmethod
    def check_examples(self, mixture: Mixture, data: DataConfig, section: str) -> None:
        """Check that the model can be trained or evaluated on ``mixture``, of a ``section`` of the recipe."""

    @property
    def special(self) -> SpecialTokens:
        """Special tokens that the model knows."""
        return self.mixtures[0].special

    @property
    def tokenizer_fingerprint(self) -> str:
        """Fingerprint of the tokenizer of all data."""
        return self.mixtures[0].tokenizer_fingerprint

    def loader(self, rank: int, world_size: int) -> Loader:
        """Make the loader of one rank."""
        seed = self.recipe.run.seed
        ahead = ShardsAhead.of(self.curriculum, self.mixtures, seed)
        return Loader(self.curriculum, self.mixtures, seed, rank, world_size, ahead)

    @contextmanager
    def batches(self, loader: Loader, model: Model, world: World) -> Iterator[Batches]:
        """Context with the inputs of ``model``, made from the batches of ``loader`` ahead of their steps.

        All processes of the run request the batches of a step together.
        """
        reopen = partial(_open_loader, type(self), self.recipe, world.rank, world.size) if self.named else None
        pinned = world.device.type == "cuda"
        with ExitStack() as stack:
            if loader.ahead:
                stack.enter_context(closing(loader.ahead))
            ahead = prefetch(loader, self.recipe.loading, self.steps, reopen=reopen, pinned=pinned)
            yield self.inputs_of(stack.enter_context(ahead), loader, model, world)

    def inputs_of(self, batches: Batches, loader: Loader, model: Model, world: World) -> Batches:
        """Convert ``batches``, those of ``loader``, to the inputs of ``model``."""
        return batches

    def origins(self, step: int, samples: np.ndarray) -> list[str]:
        """Source, file and row of each of the ``(n,)`` samples of ``step``, for messages."""
        mixture = self.mixtures[stage_number(self.curriculum, step)]
        return mixture.origins(mixture.sequences(samples, self.recipe.run.seed).indices)

    # Model.

    def build_model(self) -> Model:
        """Build the model before the first update, in float32 on the CPU.

        Its weights are those of ``run.initial_model``, or random.
        """
        recipe = self.recipe
        model = build_model(recipe.model, self.special.vocab_size, recipe.run.seed)
        if recipe.run.initial_model:
            vocabulary = Vocabulary.of(self.special, self.tokenizer_fingerprint, recipe.data.decoder_start)
            path, checkpoint = Path(recipe.run.initial_model), recipe.run.initial_checkpoint
            model.load_state_dict(initial_model(path, recipe.model, vocabulary, checkpoint).state)
        return model

    # Step.

    def counts(self, model: Model, batches: Sequence[Batch], stage: Stage) -> Counts:
        """Count tokens, positions and floating-point operations of this rank's micro-batches of a step in ``stage``."""
        counted = Counts.of(batches, stage.model, model.tokens.num_embeddings)
        return replace(counted, flops=2 * counted.flops) if self.recipe.loss.r3f else counted

    def metrics(self, batches: Sequence[Batch]) -> Mapping[str, float]:
        """Return further metrics of the step with these micro-batches, the same on every rank."""
        return {}

    # Checkpoint.

    def identity(self) -> dict[str, Any]:
        """JSON values of recipe, data and initial weights that must not change when a run is continued."""
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
        """Describe the model's token ids for a checkpoint."""
        return vocabulary_of(self.tokenizer_fingerprint, self.special, self.mixtures[0].examples(np.zeros(1, np.int64)))

    # Dry run.

    @abstractmethod
    def largest_batch(self, stage: Stage, vocab_size: int) -> Batch:
        """Make the micro-batch of ``stage`` with the most memory: full width, no padding, the first position global."""


def _open_loader(kind: type[TrainUnit], recipe: Recipe, rank: int, world_size: int) -> Loader:
    """Open the loader of a rank in another process."""
    return kind.open(recipe).loader(rank, world_size)


def has_labels(mixture: Mixture) -> bool:
    """Return True if the examples of ``mixture`` have labels in place, False if they have a target text."""
    return mixture.examples(np.zeros(1, np.int64)).labels is not None


def random_ids(vocab_size: int, *shapes: tuple[int, int]) -> list[Tensor]:
    """Draw token ids of each shape, int32, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(vocab_size, shape, generator=generator, dtype=torch.int32) for shape in shapes]
