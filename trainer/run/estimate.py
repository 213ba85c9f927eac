"""Estimates of a run: operations, hours of GPUs at a stated share of their peak, and time on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from corpora.errors import FarspanError
from corpora.printing import format_interval, keep_estimate
from trainer.checkpoint.run_files import METRICS, read_lines
from trainer.conversion.convert import settle_model
from trainer.data.config import DataConfig
from trainer.data.curriculum import Stage
from trainer.metrics import batch_flops
from trainer.model.loss import LossConfig
from trainer.parallel.device import measure_tflops
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run.train import train
from trainer.run.units import open_unit

SECONDS = 10.0
"""Seconds of updates that an estimate of this machine rests on, after the first one, which compiles."""
PEAKS = {"A100": 312.0, "L40S": 362.0, "H100": 989.0}
"""GPU -> published peak of dense bfloat16 products in 10^12 operations per second."""
UTILISATION = (0.2, 0.45)
"""Share of the peak that training reaches: the interval of the hours."""
_ENDLESS = 1 << 20  # updates that a sample does not reach
_FEWEST = 3  # updates of a sample
_PATIENCE = 60.0  # seconds of a micro-batch, above which this machine is not measured
_DOUBT = 0.1  # share by which an interval is wider than what was measured


@dataclass(frozen=True)
class Work:
    """Work of a whole run, with every row as long as its stage allows."""

    flops: float  # of forward and backward passes (``Counts.flops``), without recomputation
    updates: int
    positions: int  # source positions of all updates
    largest: float  # operations of the largest micro-batch


def complete_recipe(recipe: Recipe, token_rows: int) -> tuple[Recipe, int]:
    """Return a recipe with its model and number of updates, and the rows of its token table, 0 to count them.

    What the recipe does not say is read from its data, which are opened once.
    """
    recipe = replace(recipe, model=settle_model(recipe.model, recipe.run))
    if not _names_sources(recipe.data):
        if not token_rows:
            raise FarspanError(
                "--estimate: the recipe names no data, whose tokenizer would tell the number of rows of the token "
                "table; give the number, as in --estimate 50265"
            )
    elif not token_rows or recipe.run.steps is None:
        unit = open_unit(recipe)
        recipe, token_rows = unit.recipe, token_rows or unit.special.vocab_size
    return recipe, token_rows


def _names_sources(data: DataConfig) -> bool:
    return any(source.folder for source in data.sources)


def estimate_lines(recipe: Recipe, vocab_size: int) -> Iterator[str]:
    """Yield the lines of a complete recipe's estimate: its operations, GPUs, and this machine if it names data."""
    if recipe.run.steps is None:
        yield "of one update, as the number of updates depends on the data, which the recipe does not name:"
    work = count_work(recipe.curriculum, recipe.loss, vocab_size)
    yield from _gpu_lines(work)
    yield from (
        _machine_lines(recipe, work)
        if _names_sources(recipe.data)
        else ["this machine: not measured, as the recipe names no data"]
    )


def count_work(stages: Iterable[Stage], loss: LossConfig, vocab_size: int) -> Work:
    """Count the operations of all ``stages`` of a run."""
    flops = positions = largest = updates = 0
    for stage in stages:
        config, data = stage.model, stage.data
        targets = data.target_length if config.decoder else data.source_length // 8
        one = 3 * batch_flops(config, vocab_size, 1, data.source_length, targets, 0) * (2 if loss.r3f else 1)
        steps = stage.last_step - stage.first_step
        updates += steps
        flops += one * stage.batch_size * steps
        positions += data.source_length * stage.batch_size * steps
        largest = max(largest, one * stage.micro_batch_size)
    return Work(flops, updates, positions, largest)


def _gpu_lines(work: Work) -> Iterator[str]:
    """Yield the lines about GPUs: hours and tokens per second of each, as intervals."""
    low, high = UTILISATION
    yield (
        f"{work.flops:.2e} operations in {work.updates:,} updates of {work.positions / work.updates:,.0f} source "
        f"positions, if every row is full; GPUs at {low:.0%} to {high:.0%} of their bfloat16 peak:"
    )
    for name, peak in PEAKS.items():
        most, least = (work.flops / (peak * 1e12 * share) for share in UTILISATION)
        speeds = (work.positions / most, work.positions / least)
        yield (
            f"  {name} ({peak:g} TFLOP/s): {_hours(least)} to {_hours(most)} GPU hours, "
            f"{speeds[0]:,.0f} to {speeds[1]:,.0f} source positions/s per GPU"
        )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f}" if seconds >= 3600 else f"{seconds / 3600:.1g}"


@dataclass(frozen=True)
class Measured:
    """Seconds and memory of updates of one micro-batch on this machine and the run's data."""

    start: float
    seconds: tuple[float, ...]
    memory_bytes: int

    def whole(self, work: Work, micro_batches: float) -> tuple[float, float]:
        """Return the least and the most seconds of a run with so many micro-batches an update, in one process."""
        mean = sum(self.seconds) / len(self.seconds)
        half = len(self.seconds) // 2
        halves = [sum(part) / len(part) for part in (self.seconds[:half], self.seconds[half:]) if part]
        updates = work.updates * micro_batches
        low, high = (self.start + updates * (mean + end(halves)) / 2 for end in (min, max))
        return (1 - _DOUBT) * low, (1 + _DOUBT) * high


def measure(recipe: Recipe) -> Measured:
    """Make updates of one micro-batch each in a temporary folder, until they have taken ``SECONDS``."""
    stage, place = recipe.curriculum[0], Path(recipe.run.directory).absolute()
    run = replace(recipe.run, steps=_ENDLESS, epochs=None, tokens=None, extend=(), batch_size=stage.micro_batch_size)
    checkpoint = replace(recipe.checkpoint, best=None, every=_ENDLESS, keep=1)
    beside = next(parent for parent in place.parents if parent.is_dir())  # /tmp may be in memory
    with tempfile.TemporaryDirectory(prefix=".estimate-", dir=beside) as folder:
        run = replace(run, directory=folder, dry_run=False)
        sample = replace(recipe, run=run, stages=(), evaluation=None, checkpoint=checkpoint)
        seconds: list[float] = []
        for _ in range(2):
            until = min(max(int(SECONDS / seconds[-1]), _FEWEST), 1000) if seconds else _FEWEST
            train(sample, until=until, console=Console(quiet=True))
            records = [record for record in read_lines(Path(folder) / METRICS) if "loss" in record]
            seconds = [record["seconds"] for record in records]
        memory = max(record["memory_gib"] for record in records)
        return Measured(seconds[0], tuple(seconds[1:]), round(memory * 2**30))


def _machine_lines(recipe: Recipe, work: Work) -> Iterator[str]:
    """Yield the lines about this machine: a measurement, unless an update would be too long."""
    device = World.from_environment(recipe.run.device).device
    expected = work.largest / 1e12 / (UTILISATION[0] * measure_tflops(device, torch.float32))
    if expected > _PATIENCE:
        yield f"this machine: not measured, as one micro-batch would take about {expected:,.0f} s"
    else:
        yield f"this machine: makes updates of one micro-batch for about {SECONDS:.0f} s"
        measured = measure(recipe)
        seconds = measured.whole(work, recipe.run.batch_size / recipe.run.micro_batch_size)
        kept = {"seconds": seconds, "memory_bytes": measured.memory_bytes, "steps": recipe.run.steps}
        keep_estimate(recipe.run.directory, kept)
        yield (
            f"this machine: {format_interval(seconds)} in one process, {measured.memory_bytes / 2**30:.2f} GiB of "
            f"memory; from {len(measured.seconds)} micro-batches of the run's data"
        )
