"""A whole training run, from opening the data to the summary of the finished run; it stops on signals."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console

from corpora.errors import mark_raised_alike
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.run_files import keep_recipe, keep_start, tokenizer_contents
from trainer.checkpoint.selection import Selection
from trainer.conversion.convert import settle_model
from trainer.data.config import Source
from trainer.data.loader import Loader, prefetch
from trainer.parallel.device import peak_tflops
from trainer.parallel.distributed import World, explain_lost_processes, on_every_rank
from trainer.prediction.setup import open_validation
from trainer.prediction.validation import Validation
from trainer.recipe import Recipe
from trainer.run.display import Display
from trainer.run.evaluation import HeldOut
from trainer.run.logs import MetricsLog, Profile, describe_start, keep_summary
from trainer.run.loop import Loop
from trainer.run.memory import dry_run
from trainer.run.startup import check_best, check_data, check_models, check_shards, consequences
from trainer.run.step import Trainer
from trainer.run.units import open_unit
from trainer.run.units.unit import TrainUnit

ECHO = 3.0
"""Seconds within which a second signal counts as the same request; processes often receive a signal twice, directly and
from their launcher."""


class Interruption:
    """Context in which the first SIGINT or SIGTERM only sets ``received``.

    A signal at least ``ECHO`` seconds later has its usual effect. Outside the main thread, where Python cannot handle
    signals, the context does nothing.

    Attributes:
        received: name of the first signal; None before it.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._received_at = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._received_at = signal.Signals(number).name, time.monotonic()
        elif time.monotonic() - self._received_at >= ECHO:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())


@dataclass(frozen=True)
class Outcome:
    """The end of a call of ``train``.

    Attributes:
        step: number of finished updates.
        finished: True if the run is at its last step, or has ended early by ``evaluation.patience``.
    """

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
    name: str = "",
) -> Outcome:
    """Start a run, or continue the run in ``run.directory``; all processes of a run call this together.

    On SIGINT (Ctrl-C) or SIGTERM to any of them, the update in progress is finished, a checkpoint is written, and all
    return; a second signal some seconds later ends its process at once.

    Data that the recipe names is opened unless ``source`` and ``held_out`` are given. ``until`` stops after an update
    before the recipe's last one, with a checkpoint. ``world`` None is read from the environment; ``name`` is that of
    the recipe, for lists of runs.
    """
    joined = world or World.from_environment(recipe.run.device)
    display = Display(recipe.metrics.log_every, console if joined.first else Console(quiet=True))
    with explain_lost_processes(joined), Interruption() as stop, display:
        model = on_every_rank(joined, lambda: settle_model(recipe.model, recipe.run))
        recipe = replace(recipe, model=model)
        outcome = _train(recipe, joined, source, held_out, until, display, stop, name)
        if world is None:
            joined.close()
    return outcome


def _train(
    recipe: Recipe,
    world: World,
    source: Source | None,
    held_out: Source | None,
    until: int | None,
    display: Display,
    stop: Interruption,
    name: str,
) -> Outcome:
    unit, measured, validation = _open_data(recipe, world, source, held_out, display)
    run, directory = recipe.run, Path(recipe.run.directory)
    loader = unit.loader(world.rank, world.size)
    identity, vocabulary = unit.identity(), unit.vocabulary()
    kept = source is None and world.first
    tokenizer = tokenizer_contents(unit.curriculum[0].data.sources[0].folder) if kept else {}
    peak = peak_tflops(recipe.metrics.peak_tflops, world.device, run.precision)
    trainer = Trainer(unit, on_every_rank(world, unit.build_model), world, peak)
    with ExitStack() as stack:
        checkpoints = stack.enter_context(
            Checkpoints(directory / "checkpoints", recipe.checkpoint, world, identity, vocabulary, display.say)
        )
        restored = _restore(trainer, unit, directory, checkpoints, display)
        if run.dry_run and trainer.step < unit.steps and not checkpoints.selection.ends_run(recipe.patience):
            dry_run(trainer.gradients, trainer.optimizer, unit, trainer.model.tokens.num_embeddings, world)
        reopen = None if source is not None else partial(_reopen, recipe, world.rank, world.size)
        if loader.ahead:
            stack.enter_context(closing(loader.ahead))
        pinned = world.device.type == "cuda"
        ahead = stack.enter_context(prefetch(loader, recipe.loading, unit.steps, reopen=reopen, pinned=pinned))
        batches = unit.batches(loader, ahead, trainer.model, world)
        if world.first:
            keep_start(describe_start(trainer.step, unit.steps, world, name), directory)
            keep_recipe(asdict(recipe), tokenizer, directory)
        metrics = None  # all ranks have the same
        if world.first:
            metrics = MetricsLog(directory, trainer.step, recipe.metrics.tensorboard)
            stack.enter_context(closing(metrics))
        display.begin(unit.steps)
        profile = stack.enter_context(Profile(run.profile, directory, world.rank, world.device))
        loop = Loop(trainer, batches, loader, checkpoints, measured, validation, metrics, display, profile)
        stopped = loop.run(min(until or unit.steps, unit.steps), lambda: bool(stop.received))
        checkpoints.finish()
        early = checkpoints.selection.ends_run(recipe.patience)
        if stopped:
            display.say(_describe_stop(trainer.step, stop.received))
        if early and restored != trainer.step:
            display.say(_describe_early_end(trainer.step, checkpoints.selection))
        finished = trainer.step == unit.steps or early
        if finished and world.first:
            keep_summary(unit, trainer.model, trainer.model.tokens.num_embeddings, world)
    return Outcome(trainer.step, finished)


def _restore(
    trainer: Trainer, unit: TrainUnit, directory: Path, checkpoints: Checkpoints, display: Display
) -> int | None:
    """Continue from the newest checkpoint and return its step; None if there is none."""
    with mark_raised_alike():
        restored = checkpoints.restore(trainer.model, trainer.optimizer)
    if restored is not None:
        trainer.step = restored
        display.say(_describe_resume(unit, restored, directory, checkpoints.selection))
    return restored


def _open_data(
    recipe: Recipe, world: World, source: Source | None, held_out: Source | None, display: Display
) -> tuple[TrainUnit, list[HeldOut], Validation | None]:
    """Check the recipe's model, open the training data and the held-out data, check both, and show all warnings.

    An error on one rank is raised on all.
    """
    on_every_rank(world, lambda: check_models(recipe.model, recipe.curriculum))
    if source is None and recipe.loading.verify == "start":
        evaluated = recipe.held_out_data.sources if recipe.held_out_data else ()
        trained = [source for stage in recipe.curriculum for source in stage.data.sources]
        check_shards([*trained, *evaluated], world, display.console)

    def open_here() -> tuple[TrainUnit, list[HeldOut], Validation | None]:
        unit, evaluation, data = open_unit(recipe, source), recipe.evaluation, recipe.held_out_data
        measured, validation = unit.open_held_out(held_out), None
        if evaluation and evaluation.generation and data:
            validation = open_validation(evaluation.generation, data, recipe.model, recipe.loading, unit.mixtures[0])
        names = [*unit.list_metric_names(measured), *(validation.names if validation else ())]
        check_best(recipe.checkpoint.best, names)
        for message in [*check_data(unit, measured), *consequences(unit, recipe.run.epochs)]:
            display.say(message, "warning" if message.startswith("warning: ") else "note")
        return unit, measured, validation

    return on_every_rank(world, open_here)


def _describe_resume(unit: TrainUnit, step: int, directory: Path, selection: Selection) -> str:
    """Message about a continued run with ``step`` finished updates."""
    if selection.ends_run(unit.recipe.patience):
        return (
            f"the run in {directory} ended early after step {step}: nothing is left to do; a larger "
            "evaluation.patience continues it"
        )
    if step >= unit.steps:
        return f"all {unit.steps} steps of the run in {directory} are done: nothing is left to do"
    return f"continuing after step {step}"


def _describe_stop(step: int, signal: str | None) -> str:
    """Message about a run stopped by ``signal``; None for a signal to another process."""
    signal = signal or "a signal to another process"
    return f"stopped by {signal} after step {step}; the same command continues from there"


def _describe_early_end(step: int, selection: Selection) -> str:
    """Message about a run that ended before its last step."""
    best = "" if selection.step is None else f" than {selection.value:.4f}, of step {selection.step}"
    return (
        f"ended early after step {step}: {selection.since} evaluations in a row brought no better {selection.metric}"
        f"{best}; the run is finished"
    )


def _reopen(recipe: Recipe, rank: int, world_size: int) -> Loader:
    """Open the loader of a rank again, in another process."""
    return open_unit(recipe).loader(rank, world_size)
