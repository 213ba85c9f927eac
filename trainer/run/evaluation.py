"""Evaluations of a run: the loss on held-out sequences, and texts generated for held-out pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corpora.errors import FarspanError, nearest
from trainer.checkpoint.run_files import VALIDATION, write_sealed
from trainer.checkpoint.selection import Selection
from trainer.data.batch import Batch, collate
from trainer.data.config import DataConfig, Source
from trainer.data.mixture import Mixture
from trainer.metrics import perplexity
from trainer.parallel.distributed import World
from trainer.prediction.setup import open_validation
from trainer.prediction.validation import Validation
from trainer.run.sources import check_sample, open_source
from trainer.run.step import Trainer
from trainer.run.units.unit import TrainUnit
from trainer.run_config import EvaluationConfig


@dataclass(frozen=True)
class HeldOut:
    """The first sequences of a source, in stored order."""

    name: str  # in the metrics
    source: Source  # with the special tokens that the model knows
    data: DataConfig  # widths of batches
    sequences: int  # all if there are fewer
    micro_batch_size: int  # sequences per forward pass

    def batches(self, world: World) -> Iterator[Batch]:
        """Yield the batches of one rank.

        All ranks get the same number, because forward passes gather sharded weights together; in the last round, a rank
        without a batch gets one without targets.
        """
        count, size = min(self.sequences, len(self.source)), self.micro_batch_size
        numbers = range(-(-count // size))  # micro-batches, the same for any number of ranks
        for begin in range(0, len(numbers), world.size):
            number = begin + world.rank
            first = min(number, numbers[-1]) * size
            rows = np.arange(first, min(first + size, count))
            batch = collate(self.source.examples(rows), rows, self.data, self.source.special)
            yield batch if number in numbers else batch.without_targets()


def open_held_out(unit: TrainUnit, source: Source | None = None) -> list[HeldOut]:
    """Open the data to measure the loss on: ``source``, or those of the recipe's evaluation section, if any."""
    recipe, evaluation, data = unit.recipe, unit.recipe.evaluation, unit.recipe.held_out_data
    if evaluation is None or data is None:
        return []
    if recipe.generator and not evaluation.mixture and not evaluation.masks:
        raise FarspanError(
            "evaluation.corpus has no masks, and the spans that joint training hides change as the generator learns; "
            "give evaluation.masks, or evaluation.mixture with an objective that has a scorer or needs none"
        )
    if source is None:
        verify, cache = recipe.loading.verify == "lazily", recipe.loading.cache
        opened = open_source(data, verify=verify, section="evaluation", cache=cache)
    else:
        opened = Mixture.of(source)
    unit.check_examples(opened, data, "evaluation")
    if opened.tokenizer_fingerprint != unit.tokenizer_fingerprint:
        raise FarspanError(
            f"the held-out data has the tokenizer with fingerprint {opened.tokenizer_fingerprint}, the training data "
            f"{unit.tokenizer_fingerprint}; make both with one tokenizer"
        )
    known = opened.with_special(unit.special)
    if known.special != opened.special:  # the model may know fewer sentinels
        check_sample(known, data, "evaluation")
    rows = min(recipe.run.micro_batch_size, recipe.run.batch_size)  # at most the size of the dry run's batches
    return [HeldOut(part.name, part.source, data, evaluation.sequences, rows) for part in known.parts]


class Evaluations:
    """The evaluations between the updates of a run, by the recipe's evaluation section; none without one.

    Attributes:
        held_out: data to measure the loss on.
        patience: evaluations without improvement that end the run; None to run all steps.
    """

    def __init__(
        self, config: EvaluationConfig | None, held_out: Sequence[HeldOut], validation: Validation | None = None
    ) -> None:
        self._config, self.held_out, self._validation = config, held_out, validation
        self.patience = config.patience if config else None

    @classmethod
    def open(cls, unit: TrainUnit, source: Source | None = None) -> Evaluations:
        """Open the held-out data, or ``source``, and check that evaluations measure ``checkpoint.best``."""
        recipe, config, data = unit.recipe, unit.recipe.evaluation, unit.recipe.held_out_data
        held_out, validation = open_held_out(unit, source), None
        if config and config.generation and data:
            validation = open_validation(config.generation, data, recipe.model, recipe.loading, unit.mixtures[0])
        best, measured = recipe.checkpoint.best, [*metric_names(held_out), *(validation.names if validation else ())]
        if best is not None and best not in measured:
            raise FarspanError(
                f"checkpoint.best is {best!r}{nearest(best, measured)}; evaluations measure {', '.join(measured)}"
            )
        return cls(config, held_out, validation)

    def due(self, step: int, ends: frozenset[int]) -> tuple[bool, bool]:
        """Tell whether the loss and texts are due after ``step``; both are after the last steps, ``ends``."""
        if self._config is None:
            return False, False
        every, generation = self._config.every, self._config.generation
        texts_every = (generation and generation.every) or every
        last = step in ends
        return last or step % every == 0, bool(generation) and (last or step % texts_every == 0)

    def missing(self, step: int, ends: frozenset[int], selection: Selection) -> bool:
        """Return True if ``step`` is due for an evaluation that has not been made."""
        return any(self.due(step, ends)) and selection.evaluated < step

    def measure(self, trainer: Trainer, loss: bool, texts: bool, directory: str) -> dict[str, Any]:
        """Measure what is due; all ranks call this together. Texts are kept in the run's ``directory``."""
        trainer.enter(trainer.unit.stage_at(trainer.step - 1))
        record: dict[str, Any] = {}
        if loss:
            record |= evaluate(trainer.model, trainer.loss, self.held_out, trainer.world)
        if texts and self._validation:
            with trainer.generating() as model:
                record |= self._validation(model, trainer.world)
            if trainer.world.first:
                write_sealed(Path(directory) / VALIDATION, {"step": trainer.step, "texts": self._validation.texts})
        return record

    def describe(self, record: Mapping[str, Any]) -> str:
        """Format the results of an evaluation as a line of text."""
        return describe(record, self._validation.metric.primary if self._validation else None)


def evaluate(
    model: nn.Module, loss: Callable[[Batch], Tensor], held_out: Sequence[HeldOut], world: World
) -> dict[str, Any]:
    """Measure the loss without dropout; the same for any number of ranks, up to the rounding of float64 sums.

    All ranks call this together. ``loss`` calls ``model`` and sums the cross-entropy of a batch, without label
    smoothing, over its target tokens. Returns ``held_out_loss`` and ``held_out_perplexity``, means over the target
    tokens of all sources; with several sources, also ``held_out_loss/NAME`` of each. Values that are not finite are
    None.
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            own = [number for one in held_out for number in _sum_ranks(loss, one.batches(world))]
    finally:
        model.train(training)
    totals = world.sum(*own)
    sums, tokens = totals[::2], totals[1::2]
    mean = _mean(sum(sums), sum(tokens))
    record = {"held_out_loss": mean, "held_out_perplexity": perplexity(mean)}
    if len(held_out) > 1:
        for one, total, count in zip(held_out, sums, tokens, strict=True):
            record[f"held_out_loss/{one.name}"] = _mean(total, count)
    return record


def metric_names(held_out: Sequence[HeldOut]) -> list[str]:
    """Return the keys of ``evaluate``'s result."""
    of_sources = [f"held_out_loss/{one.name}" for one in held_out] if len(held_out) > 1 else []
    return ["held_out_loss", "held_out_perplexity", *of_sources]


def describe(record: Mapping[str, Any], metric: str | None = None) -> str:
    """Format the results of an evaluation as a line of text."""
    parts = [
        f"{name.partition('/')[2] or 'held-out loss'} {'not finite' if value is None else f'{value:.4f}'}"
        for name, value in record.items()
        if name.startswith("held_out_loss")
    ]
    said = [parts[0] + (f" ({', '.join(parts[1:])})" if parts[1:] else "")] if parts else []
    if metric is not None and metric in record:
        said.append(f"{metric} {record[metric]:.4f}")
    return "  ".join(said)


def _sum_ranks(loss: Callable[[Batch], Tensor], batches: Iterator[Batch]) -> tuple[float, int]:
    """Sum loss and target tokens of ``batches``; waits for the device once."""
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for batch in batches:
        value = loss(batch).double()
        total = total.to(value.device) + value
        tokens += batch.target_tokens
    return total.item(), tokens


def _mean(total: float, tokens: float) -> float | None:
    return total / max(tokens, 1) if math.isfinite(total) else None
