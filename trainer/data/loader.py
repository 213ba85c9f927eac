"""The loader: the batches of each step of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.data.batch import Batch, collate
from trainer.data.curriculum import Stage, stage_number
from trainer.data.mixture import Mixture
from trainer.data.order import partition
from trainer.data.remote_shards import ShardsAhead


@dataclass(frozen=True)
class Loader:
    """The batches of one rank. It has no state: the number of finished steps determines the next batch.

    Attributes:
        curriculum: stages of the run.
        mixtures: training data of each stage.
        seed: seed of the order.
        rank, world_size: select this rank's micro-batches; the global batches do not depend on them.
        ahead: fetches the shards of the coming steps from a remote store; None if all data is on local disk.
    """

    curriculum: Sequence[Stage]
    mixtures: Sequence[Mixture]
    seed: int
    rank: int = 0
    world_size: int = 1
    ahead: ShardsAhead | None = None

    def step(self, step: int) -> list[Batch]:
        """Make this rank's micro-batches of ``step``, counted from 0; every rank has the same number of them.

        A micro-batch holds neighbouring samples of the step. If there are not enough samples for a last
        micro-batch on every rank, the other ranks get one without targets.
        """
        if self.ahead:
            self.ahead.at(step)
        stage, mixture = self.at(step)
        samples = np.asarray(stage.samples(step), np.int64)
        rows, epochs = mixture.sequences(samples, self.seed)

        def make(cut: slice) -> Batch:
            return collate(mixture.examples(rows[cut], epochs[cut]), samples[cut], stage.data, mixture.special)

        cuts = partition(stage.batch_size, stage.micro_batch_size, self.rank, self.world_size)
        batches = [make(cut) for cut in cuts if cut is not None]
        first = batches[0] if batches else make(slice(0, stage.micro_batch_size))
        return batches + [first.without_targets()] * (len(cuts) - len(batches))

    def origins(self, step: int, samples: np.ndarray) -> list[str]:
        """Source, file and row of each of the ``(n,)`` samples of a batch of ``step``, for messages."""
        _, mixture = self.at(step)
        return mixture.origins(mixture.sequences(samples, self.seed).indices)

    def at(self, step: int) -> tuple[Stage, Mixture]:
        """The stage of ``step`` and its training data."""
        number = stage_number(self.curriculum, step)
        return self.curriculum[number], self.mixtures[number]
