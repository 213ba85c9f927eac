"""Joint training of an encoder-decoder and a generator, which chooses the spans that the encoder-decoder learns.

In the loader's batches every candidate is masked. The generator's losses on them decide which candidates stay hidden;
the encoder-decoder is trained on the rows rendered with this choice. See ``trainer.data.generator_masks``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed.fsdp import register_fsdp_forward_method

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from objectives.api.examples import IGNORED
from trainer.checkpoint.trained_model import vocabulary_of
from trainer.data.batch import Batch, Batches, collate
from trainer.data.config import Source
from trainer.data.curriculum import Stage
from trainer.data.generator_masks import Candidates, GeneratorMaskedCorpus, open_generator_masked
from trainer.data.loader import Loader, LoadingConfig
from trainer.data.mixture import Mixture, Part
from trainer.metrics import Counts, batch_flops
from trainer.model.config import GeneratorConfig
from trainer.model.loss import LossConfig
from trainer.model.masked_lm import JointModel, MaskedLM
from trainer.model.seq2seq import Seq2Seq
from trainer.options import Precision
from trainer.parallel.distributed import World
from trainer.run.sources import open_mixtures
from trainer.run.units.single import Seq2SeqUnit
from trainer.run.units.unit import Model, ModelSize
from trainer.scorer.models import Generator, generator_config, open_generator

_CANDIDATES = 3
"""Positions per candidate in the dry run and the memory estimate."""


@dataclass(frozen=True)
class JointBatch(Batch):
    """Both views of the same samples; the fields of ``Batch`` hold the encoder-decoder's view."""

    candidate_ids: Tensor | None = None  # (B, C), inputs of MaskedLM
    candidate_padding_mask: Tensor | None = None
    candidate_labels: Tensor | None = None
    target_counts: Tensor | None = None  # (2,) int64, target and candidate tokens of the whole step, over all ranks
    generator_loss: float = 0.0  # mean per candidate token of the whole step, over all ranks, without dropout

    @classmethod
    def of(cls, batch: Batch, candidates: Batch, target_counts: Tensor, generator_loss: float = 0.0) -> JointBatch:
        """Join the two views."""
        return cls(
            **{field.name: getattr(batch, field.name) for field in fields(Batch)},
            candidate_ids=candidates.source_ids,
            candidate_padding_mask=candidates.source_padding_mask,
            candidate_labels=candidates.labels,
            target_counts=target_counts,
            generator_loss=generator_loss,
        )

    @property
    def inputs(self) -> dict[str, Tensor | None]:
        """Keyword arguments of ``JointModel``."""
        names = ("candidate_ids", "candidate_padding_mask", "candidate_labels", "target_counts")
        return {**super().inputs, **{name: getattr(self, name) for name in names}}


class JointUnit(Seq2SeqUnit):
    """The unit of an encoder-decoder and its generator."""

    @classmethod
    def sizes(cls, stage: Stage, loss: LossConfig, generator: GeneratorConfig | None = None) -> list[ModelSize]:
        config, candidates = generator_config(_require(generator)), stage.data.source_length // _CANDIDATES
        return [*super().sizes(stage, loss), ModelSize(config, candidates)]

    @cached_property
    def generator(self) -> Generator:
        """The generator before the first update."""
        config, corpus = _require(self.recipe.generator), Corpus(self.curriculum[0].data.corpus)
        return open_generator(config, corpus, self.recipe.run.seed)

    def open_mixtures(self, loading: LoadingConfig, source: Source | None) -> list[Mixture]:
        if source is not None:
            raise FarspanError(
                "joint training with a generator opens its corpus itself; name it in data.corpus and pass no source"
            )
        special, positions = self.generator.special, self.generator.positions

        def open_stage(stage: Stage) -> Mixture:
            masked = open_generator_masked(
                stage.data, special, positions, verify=loading.verify == "lazily", cache=loading.cache
            )
            return Mixture([Part("data", masked, shuffle_shards=stage.data.shuffle_shards)])

        return open_mixtures(self.curriculum, open_stage)

    def loader(self, rank: int, world_size: int) -> Loader:
        candidates = [
            Mixture([replace(part, source=_rows(mixture).view_candidates()) for part in mixture.parts])
            for mixture in self.mixtures
        ]
        return replace(super().loader(rank, world_size), mixtures=candidates)

    def inputs_of(self, batches: Batches, loader: Loader, model: Model, world: World) -> Batches:
        assert isinstance(model, JointModel)
        return JointBatches(loader, batches, model, world, self.recipe.run.precision)

    def build_model(self) -> Model:
        model = super().build_model()
        assert isinstance(model, Seq2Seq)
        return JointModel(model, self.generator.model, _require(self.recipe.generator).weight)

    def counts(self, model: Model, batches: Sequence[Batch], stage: Stage) -> Counts:
        assert isinstance(model, JointModel)
        return super().counts(model, batches, stage) + Counts(flops=_generator_flops(batches, model.generator))

    def metrics(self, batches: Sequence[Batch]) -> Mapping[str, float]:
        (batch, *_) = batches
        assert isinstance(batch, JointBatch)
        return {"generator_loss": batch.generator_loss}

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "initial_generator": self.generator.identity}

    def vocabulary(self) -> dict[str, Any]:
        """Both vocabularies: the generator's is under ``generator``, with its configuration."""
        candidates = _rows(self.mixtures[0]).candidates(np.zeros(1, np.int64))
        generator = vocabulary_of(self.tokenizer_fingerprint, self.generator.special, candidates)
        return {**super().vocabulary(), "generator": {"model": asdict(self.generator.model.config), **generator}}

    def largest_batch(self, stage: Stage, vocab_size: int) -> Batch:
        batch = super().largest_batch(stage, vocab_size)
        ids = torch.zeros_like(batch.source_ids)  # 0 is an id of every vocabulary
        labels = ids.masked_fill(torch.arange(ids.shape[1]) % _CANDIDATES > 0, IGNORED)
        candidates = replace(batch, source_ids=ids, labels=labels)
        counts = torch.tensor([batch.target_tokens, int((labels != IGNORED).sum())])
        return JointBatch.of(batch, candidates, counts)


class JointBatches:
    """Batches with both views: the candidates of a step are scored, then the rows are rendered with the choice.

    All ranks call ``step`` together.
    """

    def __init__(self, loader: Loader, batches: Batches, model: JointModel, world: World, precision: Precision) -> None:
        self._loader, self._batches, self._model, self._world = loader, batches, model, world
        self._precision = precision

    def step(self, step: int) -> list[JointBatch]:
        """Make this rank's micro-batches of ``step``, counted from 0."""
        stage, mixture = self._loader.at(step)
        shown = self._batches.step(step)
        (source,) = (part.source for part in mixture.parts)
        assert isinstance(source, Candidates)
        chosen, scores = [], self._scores(shown)
        for batch, losses in zip(shown, scores, strict=True):
            indices, epochs = mixture.sequences(batch.samples, self._loader.seed)
            examples = source.choose(indices, losses, epochs)
            made = collate(examples, batch.samples, stage.data, mixture.special)
            chosen.append(made if batch.source_tokens else made.without_targets())
        targets, candidates, total = self._world.sum(
            sum(batch.target_tokens for batch in chosen),
            sum(batch.target_tokens for batch in shown),
            sum(float(losses.sum(dtype=np.float64)) for losses in scores),
        )
        counts, loss = torch.tensor([targets, candidates], dtype=torch.int64), total / max(candidates, 1)
        return [JointBatch.of(made, batch, counts, loss) for made, batch in zip(chosen, shown, strict=True)]

    @cached_property
    def _score(self) -> Callable[..., Tensor]:
        register_fsdp_forward_method(self._model, "score")  # gathers sharded weights before the call
        return self._model.score

    def _scores(self, shown: Sequence[Batch]) -> list[np.ndarray]:
        """Compute the generator's losses, ``(B, C)`` float32 for each batch."""
        device = self._world.device
        self._model.eval()
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=self._precision == "bf16"):
            scores = [
                self._score(batch.source_ids, batch.source_padding_mask, batch.labels)
                for batch in (batch.to(device) for batch in shown)
            ]
        # A loss that is not finite must not affect the choice; in training it recurs, and the update is skipped.
        return [np.nan_to_num(losses.cpu().numpy(), nan=0.0, posinf=0.0, neginf=0.0) for losses in scores]


def _require(config: GeneratorConfig | None) -> GeneratorConfig:
    assert config is not None
    return config


def _rows(mixture: Mixture) -> GeneratorMaskedCorpus:
    (source,) = (part.source for part in mixture.parts)
    assert isinstance(source, GeneratorMaskedCorpus)
    return source


def _generator_flops(batches: Sequence[Batch], generator: MaskedLM) -> int:
    """Count the generator's operations in a step: a forward pass for the choice, and training as in ``Counts``.

    The two passes differ in dropout, so neither can replace the other.
    """
    vocab_size, total = generator.tokens.num_embeddings, 0
    for batch in batches:
        assert isinstance(batch, JointBatch)
        assert batch.candidate_ids is not None
        assert batch.candidate_labels is not None
        rows, width = batch.candidate_ids.shape
        masked = int((batch.candidate_labels != IGNORED).sum())
        total += (1 + 3) * batch_flops(generator.config, vocab_size, rows, width, masked)
    return total
