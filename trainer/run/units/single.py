"""Training of one model: an encoder-decoder on source and target, an encoder on the masked tokens of its input."""

from __future__ import annotations

from dataclasses import replace

import torch

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from trainer.data.batch import Batch
from trainer.data.config import DataConfig
from trainer.data.curriculum import Stage
from trainer.data.mixture import Mixture
from trainer.data.packed import PackedPairs
from trainer.model.config import GeneratorConfig
from trainer.model.loss import LossConfig
from trainer.run.sources import check_start
from trainer.run.units.unit import ModelSize, TrainUnit, has_labels, random_ids


class Seq2SeqUnit(TrainUnit):
    """The unit of a model with a decoder."""

    @classmethod
    def sizes(cls, stage: Stage, loss: LossConfig, generator: GeneratorConfig | None = None) -> list[ModelSize]:
        return [ModelSize(stage.model, stage.data.target_length, 2 if loss.r3f else 1)]

    def check_examples(self, mixture: Mixture, data: DataConfig, section: str) -> None:
        check_start(mixture.special, data)
        if has_labels(mixture):
            raise FarspanError(
                f"{section}: the objective has labels at masked tokens; remove the recipe's model.decoder section, "
                "as --set model.decoder=none does, or give another objective"
            )

    def largest_batch(self, stage: Stage, vocab_size: int) -> Batch:
        rows, data = min(stage.micro_batch_size, stage.batch_size), stage.data
        source, target = random_ids(vocab_size, (rows, data.source_length), (rows, data.target_length))
        batch = Batch.full(source, target, target)
        if not data.packing:
            return batch
        sources = [part.source for mixture in self.mixtures for part in mixture.parts]
        most = max((packed.most for packed in sources if isinstance(packed, PackedPairs)), default=1)
        segments, targets = (
            (torch.arange(ids.shape[1]) * most // ids.shape[1]).expand(rows, -1) for ids in (source, target)
        )
        return replace(batch, segment_ids=segments.int(), target_segment_ids=targets.int())


_MASKED = 4
"""Positions per masked one in the dry run and the memory estimate; objectives mask fewer."""


class MaskedLMUnit(TrainUnit):
    """The unit of a model without a decoder."""

    @classmethod
    def sizes(cls, stage: Stage, loss: LossConfig, generator: GeneratorConfig | None = None) -> list[ModelSize]:
        return [ModelSize(stage.model, stage.data.source_length // _MASKED)]

    def check_examples(self, mixture: Mixture, data: DataConfig, section: str) -> None:
        if not has_labels(mixture):
            raise FarspanError(
                f"{section}: the objective has a target text; add a model.decoder section to the recipe, or give "
                "another objective"
            )

    def largest_batch(self, stage: Stage, vocab_size: int) -> Batch:
        rows, width = min(stage.micro_batch_size, stage.batch_size), stage.data.source_length
        (source,) = random_ids(vocab_size, (rows, width))
        return Batch.full(source, source.masked_fill(torch.arange(width) % _MASKED > 0, IGNORED), None)
