"""A whole training run, from opening the data to the summary of the finished run; it stops on signals."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from corpora.errors import mark_raised_alike
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.run_files import SUMMARY, find_faults, keep_recipe, keep_start, tokenizer_contents
from trainer.checkpoint.selection import Selection
from trainer.conversion.convert import settle_model
from trainer.data.config import Source
from trainer.parallel.device import peak_tflops
from trainer.parallel.distributed import World, explain_lost_processes, on_every_rank
from trainer.recipe import Recipe
from trainer.run.display import Display
from trainer.run.evaluation import Evaluations
from trainer.run.logs import MetricsLog, Profile, describe_start, keep_summary
from trainer.run.loop import Loop
from trainer.run.memory import dry_run
from trainer.run.startup import open_data
from trainer.run.step import Trainer

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

    def __exit__(self, *_: object) -> None:
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
    unit, evaluations = open_data(recipe, world, source, held_out, display)
    run, directory = recipe.run, Path(recipe.run.directory)
    loader = unit.loader(world.rank, world.size)
    identity, vocabulary = unit.identity(), unit.vocabulary()
    tokenizer = tokenizer_contents(unit.curriculum[0].data.sources[0].folder) if unit.named and world.first else {}
    peak = peak_tflops(recipe.metrics.peak_tflops, world.device, run.precision)
    model = on_every_rank(world, unit.build_model)
    trainer = Trainer(unit, model, world, run, recipe.parallel, recipe.optimizer, recipe.loss, peak)
    vocab_size = model.tokens.num_embeddings
    with ExitStack() as stack:
        checkpoints = stack.enter_context(
            Checkpoints(directory / "checkpoints", recipe.checkpoint, world, identity, vocabulary, display.say)
        )
        restored = _restore(trainer, checkpoints, evaluations, directory, display)
        if _is_complete(trainer, checkpoints.selection, evaluations, directory):
            return Outcome(trainer.step, True)
        if run.dry_run and trainer.step < unit.steps and not checkpoints.selection.ends_run(evaluations.patience):
            dry_run(trainer.gradients, trainer.optimizer, unit, vocab_size, world)
        batches = stack.enter_context(unit.batches(loader, model, world))
        metrics = None  # all ranks have the same
        if world.first:
            keep_start(describe_start(trainer.step, unit.steps, world, name), directory)
            keep_recipe(asdict(recipe), tokenizer, directory)
            metrics = stack.enter_context(closing(MetricsLog(directory, trainer.step, recipe.metrics.tensorboard)))
        display.begin(unit.steps)
        profile = stack.enter_context(closing(Profile(run.profile, directory, world.rank, world.device)))
        loop = Loop(trainer, batches, checkpoints, evaluations, metrics, display, profile, run)
        stopped = loop.run(min(until or unit.steps, unit.steps), lambda: bool(stop.received))
        checkpoints.finish()
        early = checkpoints.selection.ends_run(evaluations.patience)
        if stopped:
            display.say(_describe_stop(trainer.step, stop.received))
        if early and restored != trainer.step:
            display.say(_describe_early_end(trainer.step, checkpoints.selection))
        finished = trainer.step == unit.steps or early
        if finished and world.first:
            keep_summary(unit.recipe, model, vocab_size, world)
    return Outcome(trainer.step, finished)


def _restore(
    trainer: Trainer, checkpoints: Checkpoints, evaluations: Evaluations, directory: Path, display: Display
) -> int | None:
    """Continue from the newest checkpoint and return its step; None if there is none."""
    with mark_raised_alike():
        step = checkpoints.restore(trainer.model, trainer.optimizer)
    if step is None:
        return None
    trainer.step, steps = step, trainer.unit.steps
    if checkpoints.selection.ends_run(evaluations.patience):
        display.say(f"the run in {directory} ended early after step {step}; a larger evaluation.patience continues it")
    elif step >= steps:
        display.say(f"all {steps} steps of the run in {directory} are done already")
    else:
        display.say(f"continuing after step {step}")
    return step


def _is_complete(trainer: Trainer, selection: Selection, evaluations: Evaluations, directory: Path) -> bool:
    """Return True if nothing is left to do or to mend, so that the files of the run stay as they are."""
    ended = trainer.step >= trainer.unit.steps or selection.ends_run(evaluations.patience)
    if not ended or evaluations.missing(trainer.step, trainer.unit.ends, selection):
        return False
    first = trainer.world.first
    lacking = first and (not (directory / SUMMARY).is_file() or bool(find_faults(directory, trainer.step, None)))
    return not trainer.world.any(lacking)


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
