"""The batches of each step of a run, through all its stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.data.collate import collate
from trainer.data.config import Batch
from trainer.data.curriculum import Stage, number_at
from trainer.data.mixture import Mixture
from trainer.data.order import dealt


@dataclass(frozen=True)
class Loader:
    """One rank's batches. It has no state: a run stands where its number of finished steps says.

    Attributes:
        stages: of the run.
        mixtures: what each of them is trained on.
        seed: of the order.
        rank, world_size: whose share of each step; neither decides what is in a step or in a micro-batch.
    """

    stages: Sequence[Stage]
    mixtures: Sequence[Mixture]
    seed: int
    rank: int = 0
    world_size: int = 1

    def step(self, step: int) -> list[Batch]:
        """This rank's micro-batches of ``step``, counted from 0; as many as every other rank's.

        A micro-batch is made of neighbouring samples of the step. Where ranks do not come out even, one asks for
        nothing in its last.

        Raises:
            FarspanError: data that is damaged or does not fit the widths.
        """
        stage, mixture = self.at(step)
        samples = np.asarray(stage.samples(step), np.int64)
        rows, epochs = mixture.sequences(samples, self.seed)

        def made(cut: slice) -> Batch:
            return collate(mixture.examples(rows[cut], epochs[cut]), samples[cut], stage.data, mixture.special)

        shares = dealt(stage.batch_size, stage.micro_batch_size, self.rank, self.world_size)
        batches = [made(cut) for cut in shares if cut is not None]
        first = batches[0] if batches else made(slice(0, stage.micro_batch_size))
        return batches + [first.asking_nothing()] * (len(shares) - len(batches))

    def origins(self, step: int, samples: np.ndarray) -> list[str]:
        """Source, file and row of each of the ``(n,)`` samples of a batch of ``step``, for readers."""
        _, mixture = self.at(step)
        return mixture.origins(mixture.sequences(samples, self.seed).indices)

    def at(self, step: int) -> tuple[Stage, Mixture]:
        """The stage of ``step``, and what it is trained on."""
        number = number_at(self.stages, step)
        return self.stages[number], self.mixtures[number]
