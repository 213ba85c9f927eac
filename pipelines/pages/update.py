"""The rows of an update of a run, computed from the order of the samples without a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpora.errors import FarspanError
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import Examples
from trainer.checkpoint.run_files import STARTS, read_lines, read_tokenizer
from trainer.data.curriculum import Stage, stage_number
from trainer.data.mixture import Mixture
from trainer.data.order import partition
from trainer.recipe import Recipe, read_recipe
from trainer.run.sources import open_stages


@dataclass(frozen=True)
class Seen:
    """A row of an update.

    Attributes:
        rank: process that had the row.
        micro_batch: number of the forward pass of that process.
        sample: number of the sample in the order of its stage.
        source: name of the source in the mixture.
        part: number of the source in the mixture.
        row: row in the source.
        epoch: number of times the run had seen the row before.
        place: source, file and row in words.
    """

    rank: int
    micro_batch: int
    sample: int
    source: str
    part: int
    row: int
    epoch: int
    place: str


@dataclass(frozen=True)
class UpdateRows:
    """The rows of an update, in the order of their samples.

    Attributes:
        mixture: mixture that renders them.
        rows: rows of the selected processes.
    """

    step: int
    mixture: Mixture
    rows: Sequence[Seen]

    def examples(self, row: Seen) -> Examples:
        """Render the row as the model read it, ``(1, ...)``."""
        index = sum(share.size for share in self.mixture.shares[: row.part]) + row.row
        return self.mixture.examples(np.array([index]), np.array([row.epoch]))


def open_update(folder: str, step: int, rank: int | None = None) -> UpdateRows:
    """Find the rows that update ``step`` of a run saw, from the recipe and starts that its folder keeps.

    With ``rank``, only the rows of this process.
    """
    place = Path(folder)
    recipe = read_recipe(place)
    if recipe is None:
        raise FarspanError(f"{folder}: keeps no recipe; give a run of `farspan train`")
    return update_rows(recipe, step, _processes(place, step), rank)


def run_tokenizer(folder: str) -> Tokenizer:
    """Load the tokenizer of a run."""
    tokenizer = read_tokenizer(Path(folder))
    if tokenizer is None:
        raise FarspanError(f"{folder}: has no folder tokenizer; copy the run again, as a whole")
    return tokenizer


def update_rows(recipe: Recipe, step: int, processes: int = 1, rank: int | None = None) -> UpdateRows:
    """Find the rows of update ``step`` of a run, counted from 1 as in ``metrics.jsonl``; of one process with ``rank``.

    The number of ``processes`` at that step determines the process of each row.
    """
    if recipe.generator and recipe.generator.mode == "joint":
        raise FarspanError(
            "the run trains its generator jointly, and the masks depend on the generator's weights at that update; "
            "show rows of its corpus instead, with the places that metrics.jsonl names"
        )
    mixtures = open_stages(recipe.curriculum, cache=recipe.loading.cache)
    curriculum = recipe.with_samples(len(mixtures[0])).curriculum
    if not 1 <= step <= curriculum[-1].last_step:
        raise FarspanError(f"--step {step}: the run has updates 1 to {curriculum[-1].last_step:,}")
    if rank is not None and not 0 <= rank < processes:
        raise FarspanError(f"--rank {rank}: the run had processes 0 to {processes - 1} at that update")
    number = stage_number(curriculum, step - 1)
    stage, mixture = curriculum[number], mixtures[number]
    wanted = range(processes) if rank is None else [rank]
    rows = [seen for one in wanted for seen in _rows(stage, mixture, step - 1, recipe.run.seed, one, processes)]
    return UpdateRows(step, mixture, rows)


def _rows(stage: Stage, mixture: Mixture, step: int, seed: int, rank: int, processes: int) -> Iterator[Seen]:
    """Yield the rows that the loader gives a process for ``step``, counted from 0."""
    samples = np.asarray(stage.samples(step), np.int64)
    indices, epochs = mixture.sequences(samples, seed)
    starts = np.cumsum([0, *(share.size for share in mixture.shares)])
    parts = np.searchsorted(starts, indices, side="right") - 1
    cuts = partition(stage.batch_size, stage.micro_batch_size, rank, processes)
    for micro_batch, cut in enumerate(cuts):
        for place in range(*cut.indices(len(samples))) if cut is not None else ():
            part = int(parts[place])
            yield Seen(
                rank,
                micro_batch,
                int(samples[place]),
                mixture.parts[part].name,
                part,
                int(indices[place] - starts[part]),
                int(epochs[place]),
                mixture.origins(indices[place : place + 1])[0],
            )


def _processes(folder: Path, step: int) -> int:
    """Return the number of processes of an update, recorded at the last start before it."""
    starts = [start for start in read_lines(folder / STARTS) if start.get("step", 0) < step]
    return int(starts[-1].get("processes", 1)) if starts else 1
