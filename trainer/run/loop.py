"""The updates of a run, with logging, evaluation and checkpoints between them, and the limit on skipped updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corpora.errors import FarspanError, mark_raised_alike
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.run_files import VALIDATION, write_sealed
from trainer.data.batch import Batches
from trainer.data.loader import Loader
from trainer.optim.optimizer import calmer
from trainer.prediction.validation import Validation
from trainer.run.display import Display
from trainer.run.evaluation import HeldOut, describe
from trainer.run.logs import MetricsLog, Profile
from trainer.run.step import Trainer, Update
from trainer.run_config import RunConfig

_NAMED = 4  # maximum number of samples in a message


class SkippedUpdates:
    """Counts skipped updates in a row."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._count = 0

    def count(self, record: Mapping[str, Any]) -> None:
        """Count an update, given its metrics, whose ``skipped`` lists samples if it was skipped."""
        if "skipped" not in record:
            self._count = 0
            return
        self._count += 1
        run, step, samples = self._config, record["step"], record["skipped"]
        named = [" ".join(map(str, sample.values())) for sample in samples[:_NAMED]]
        ids = "; ".join(named) + ("; ..." if len(samples) > _NAMED else "")
        cure = f"look at these sequences in the corpus, or {calmer(run.precision)}"
        if run.non_finite == "abort":
            raise FarspanError(
                f"step {step}: loss or gradient is not finite (samples {ids}); {cure}, or set run.non_finite to skip"
            )
        if self._count >= run.max_skipped:
            raise FarspanError(
                f"{self._count} updates in a row, up to step {step}, had a loss or gradient that is not finite; "
                f"metrics.jsonl names their samples (the last ones: {ids}); {cure}"
            )


class Loop:
    """The updates of one run on one rank; every rank runs its own loop."""

    def __init__(
        self,
        trainer: Trainer,
        batches: Batches,
        loader: Loader,
        checkpoints: Checkpoints,
        held_out: Sequence[HeldOut],
        validation: Validation | None,
        metrics: MetricsLog | None,
        display: Display,
        profile: Profile,
    ) -> None:
        """Continue from the step of ``trainer``; ``checkpoints`` hold the evaluations so far."""
        self._trainer, self._recipe, self._batches, self._loader = trainer, trainer.recipe, batches, loader
        self._checkpoints, self._held_out, self._metrics, self._display = checkpoints, held_out, metrics, display
        self._validation, self._profile = validation, profile
        self._unlogged: Update | None = None
        self._skipped = SkippedUpdates(trainer.recipe.run)
        self._saved, self._selected = trainer.step, checkpoints.selection

    def run(self, last: int, stop_requested: Callable[[], bool]) -> bool:
        """Train until step ``last`` or an early end, with a checkpoint there; return True if a rank asked to stop."""
        trainer = self._trainer
        self._evaluate(stop_requested)  # a stopped run may have left it out
        while trainer.step < last and not self._early():
            self._profile.before(trainer.step + 1)
            update = trainer.update(self._batches, stop=stop_requested())
            self._log()  # the previous update, while the device works on this one
            if update is None:
                self._save()
                return True
            self._unlogged = update
            improved = self._evaluate(stop_requested)
            due = trainer.step % self._recipe.checkpoint.every == 0
            if improved or due or trainer.step == last or self._early():
                self._log()
                self._save()
        self._save()
        return False

    def _early(self) -> bool:
        return self._checkpoints.selection.ends_run(self._recipe.patience)

    def _log(self) -> None:
        """Log the last update if it is still unlogged."""
        update, self._unlogged = self._unlogged, None
        if update is not None:
            record = self._trainer.record(update)
            if skipped := record.get("skipped"):
                numbers = np.array([sample["number"] for sample in skipped])
                for sample, origin in zip(skipped, self._loader.origins(update.step - 1, numbers), strict=True):
                    sample["origin"] = origin
            if self._metrics:
                self._metrics.write(record)
            self._display.update(record)
            with mark_raised_alike():
                self._skipped.count(record)

    def _evaluate(self, stop_requested: Callable[[], bool]) -> bool:
        """Evaluate if it is due and no rank asks to stop; return True if the checkpoint of this step is the best."""
        trainer, evaluation, before = self._trainer, self._recipe.evaluation, self._checkpoints.selection
        if evaluation is None:
            return False
        generation = evaluation.generation
        loss_due, texts_due = (
            trainer.step % every == 0 or trainer.step in trainer.unit.ends
            for every in (evaluation.every, (generation and generation.every) or evaluation.every)
        )
        if (
            not (loss_due or (texts_due and generation))
            or before.evaluated >= trainer.step
            or trainer.world.any(stop_requested())
        ):
            return False
        self._log()
        trainer.enter(trainer.unit.stage_at(trainer.step - 1))
        record: dict[str, Any] = {}
        if loss_due:
            record |= trainer.unit.evaluate(trainer.model, trainer.loss, self._held_out, trainer.world)
        if texts_due and self._validation:
            with trainer.generating() as model:
                record |= self._validation(model, trainer.world)
            if trainer.world.first:
                kept = {"step": trainer.step, "texts": self._validation.texts}
                write_sealed(Path(self._recipe.run.directory) / VALIDATION, kept)
        if self._metrics:
            self._metrics.write({"step": trainer.step, **record})
        selection = before.add_evaluation(trainer.step, record)
        self._checkpoints.selection = selection
        improved = selection.step == trainer.step
        shown = describe(record, self._validation.metric.primary if self._validation else None)
        self._display.say(f"step {trainer.step}  {shown}{'  best so far' if improved else ''}")
        return improved

    def _save(self) -> None:
        trainer, selection = self._trainer, self._checkpoints.selection
        if self._saved < trainer.step:
            samples = trainer.unit.stage_at(trainer.step - 1).samples(trainer.step - 1).stop
            self._checkpoints.save(trainer.step, samples, trainer.model, trainer.optimizer)
        elif selection != self._selected:
            self._checkpoints.save_selection(trainer.step)
        self._saved, self._selected = trainer.step, selection
