"""A whole training run: open the data, build or continue the model, update, evaluate, checkpoint, stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from trainer.checkpoint.checkpoints import Checkpoints
from trainer.data.config import Batches, Source
from trainer.data.loader import Loader
from trainer.data.prefetch import prefetched
from trainer.metrics import Display, Together, open_metrics
from trainer.model.joint import JointModel
from trainer.parallel.device import peak_tflops
from trainer.parallel.distributed import World, explained
from trainer.recipe import Recipe
from trainer.run.dry_run import dry_run
from trainer.run.evaluation import HeldOut, describe, evaluate
from trainer.run.joint import JointBatches
from trainer.run.signals import Interruption
from trainer.run.startup import (
    begin_model,
    check_data,
    check_shards,
    keep_tokenizer,
    open_held_out,
    open_training,
    run_identity,
    run_vocabulary,
)
from trainer.run.step import Trainer, Update


@dataclass(frozen=True)
class Outcome:
    """Where a run stopped: after how many updates, and whether these are all that the recipe asks for."""

    step: int
    finished: bool


def train(
    recipe: Recipe,
    *,
    source: Source | None = None,
    held_out: Source | None = None,
    until: int | None = None,
    console: Console | None = None,
    world: World | None = None,
) -> Outcome:
    """Train, or go on with the run that ``run.directory`` holds; all processes of a run call this together.

    On SIGINT (Ctrl-C) or SIGTERM to any of them the update in progress is finished, a checkpoint is written, and all
    return; a second signal, seconds later, ends its process at once.

    Args:
        recipe: everything about the run.
        source: what to train on; None opens what the recipe names.
        held_out: what the recipe's evaluation section, if there is one, evaluates on; None opens what it names.
        until: stop after this update, with a checkpoint, though the recipe asks for more.
        console: where progress is shown, by rank 0.
        world: this process among others; None asks the environment.

    Raises:
        FarspanError: data that cannot be read or does not fit the model, a directory that holds another run, too little
            memory, updates that are not finite, another process that was lost.
    """
    joined = world or World.from_environment(recipe.run.device)
    with explained(joined), Interruption() as stop:
        outcome = _train(recipe, joined, source, held_out, until, console, stop)
        if world is None:
            joined.close()
    return outcome


def _train(
    recipe: Recipe,
    world: World,
    source: Source | None,
    held_out: Source | None,
    until: int | None,
    console: Console | None,
    stop: Interruption,
) -> Outcome:
    run, directory = recipe.run, Path(recipe.run.directory)
    display = Display(run.steps, recipe.metrics.log_every, console if world.first else Console(quiet=True))
    if source is None and recipe.loading.verify == "start":
        check_shards(recipe, world, display.console)
    trained = open_training(recipe, source)
    measured = open_held_out(recipe, trained, held_out)
    loader = Loader(recipe.all_stages, trained.mixtures, run.seed, world.rank, world.size)
    for warning in check_data(recipe, trained, measured):
        display.say(f"warning: {warning}")
    reopen = None if source is not None else partial(_reopened, recipe, world.rank, world.size)
    identity, vocabulary = run_identity(recipe, trained), run_vocabulary(trained)
    if source is None and world.first:
        keep_tokenizer(recipe, directory)
    peak = peak_tflops(recipe.metrics.peak_tflops, world.device, run.precision)
    trainer = Trainer(begin_model(recipe, trained), recipe, world, peak)
    with ExitStack() as stack:
        checkpoints = stack.enter_context(
            Checkpoints(directory / "checkpoints", recipe.checkpoint, world, identity, vocabulary, display.say)
        )
        found = checkpoints.restore(trainer.model, trainer.optimizer)
        if found is not None:
            trainer.step = found
            done = f"all {run.steps} steps of the run in {directory} are made: nothing is left to do"
            display.say(f"going on after step {found}" if found < run.steps else done)
        if run.dry_run and trainer.step < run.steps:
            dry_run(trainer.gradients, trainer.optimizer, recipe, trainer.vocab_size, world)
        batches: Batches = stack.enter_context(
            prefetched(loader, recipe.loading, run.steps, reopen=reopen, pinned=world.device.type == "cuda")
        )
        if isinstance(trainer.model, JointModel):
            batches = JointBatches(loader, batches, trainer.model, world, run.precision)
        metrics = stack.enter_context(closing(open_metrics(recipe.metrics, directory, trainer.step, world.rank)))
        stack.enter_context(display)
        going = _Run(trainer, batches, loader, checkpoints, measured, metrics, display)
        stopped = going.until(min(until or run.steps, run.steps), lambda: bool(stop.asked))
        checkpoints.finish()
        if stopped:
            signal = stop.asked or "a signal to another process"
            display.say(f"stopped by {signal} after step {trainer.step}; the same command goes on from there")
    return Outcome(trainer.step, trainer.step == run.steps)


class _Run:
    """The updates of a run, and what is done between them."""

    def __init__(
        self,
        trainer: Trainer,
        batches: Batches,
        loader: Loader,
        checkpoints: Checkpoints,
        held_out: Sequence[HeldOut],
        metrics: Together,
        display: Display,
    ) -> None:
        self._trainer, self._recipe, self._batches, self._loader = trainer, trainer.recipe, batches, loader
        self._checkpoints, self._held_out, self._metrics, self._display = checkpoints, held_out, metrics, display
        self._unread: Update | None = None
        self._saved = trainer.step

    def until(self, last: int, asked: Callable[[], bool]) -> bool:
        """Make updates until ``last``, with a checkpoint at the end; whether a rank asked to stop before."""
        trainer, evaluation = self._trainer, self._recipe.evaluation
        while trainer.step < last:
            update = trainer.update(self._batches, stop=asked())
            self._read()  # of the update before, while the device makes this one
            if update is None:
                self._save()
                return True
            self._unread = update
            ending = trainer.step == last
            if evaluation and (ending or trainer.step % evaluation.every == 0) and not trainer.world.any(asked()):
                self._read()
                self._evaluate()
            if ending or trainer.step % self._recipe.checkpoint.every == 0:
                self._read()
                self._save()
        return False

    def _read(self) -> None:
        """Report the update that has not been."""
        update, self._unread = self._unread, None
        if update is not None:
            record = self._trainer.record(update)
            if skipped := record.get("skipped"):
                numbers = np.array([sample["number"] for sample in skipped])
                for sample, origin in zip(skipped, self._loader.origins(update.step - 1, numbers), strict=True):
                    sample["origin"] = origin
            self._metrics.write(record)
            self._display.update(record)
            self._trainer.count_skipped(record)

    def _evaluate(self) -> None:
        trainer = self._trainer
        record = evaluate(trainer.model, trainer.loss, self._held_out, trainer.world)
        self._metrics.write({"step": trainer.step, **record})
        self._display.say(f"step {trainer.step}  {describe(record)}")

    def _save(self) -> None:
        trainer = self._trainer
        if self._saved < trainer.step:
            samples = self._recipe.stage_at(trainer.step - 1).samples(trainer.step - 1).stop
            self._checkpoints.save(trainer.step, samples, trainer.model, trainer.optimizer)
            self._saved = trainer.step


def _reopened(recipe: Recipe, rank: int, size: int) -> Loader:
    """The loader of a rank, opened anew in another process."""
    return Loader(recipe.all_stages, open_training(recipe).mixtures, recipe.run.seed, rank, size)
