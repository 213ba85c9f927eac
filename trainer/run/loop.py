"""The updates of a run, with logging, evaluation and checkpoints between them, and the limit on skipped updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from corpora.errors import FarspanError, mark_raised_alike
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.data.batch import Batches
from trainer.optim.optimizer import advise_calmer_settings
from trainer.run.display import Display
from trainer.run.evaluation import Evaluations
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
        cure = f"look at these sequences in the corpus, or {advise_calmer_settings(run.precision)}"
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
        checkpoints: Checkpoints,
        evaluations: Evaluations,
        metrics: MetricsLog | None,
        display: Display,
        profile: Profile,
        run: RunConfig,
    ) -> None:
        """Continue from the step of ``trainer``; ``checkpoints`` hold the evaluations so far."""
        self._trainer, self._batches, self._checkpoints, self._evaluations = trainer, batches, checkpoints, evaluations
        self._metrics, self._display, self._profile, self._run = metrics, display, profile, run
        self._unlogged: Update | None = None
        self._skipped = SkippedUpdates(run)
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
            if improved or self._checkpoints.due(trainer.step) or trainer.step == last or self._early():
                self._log()
                self._save()
        self._save()
        return False

    def _early(self) -> bool:
        return self._checkpoints.selection.ends_run(self._evaluations.patience)

    def _log(self) -> None:
        """Log the last update if it is still unlogged."""
        update, self._unlogged = self._unlogged, None
        if update is not None:
            record = self._trainer.record(update)
            if self._metrics:
                self._metrics.write(record)
            self._display.update(record)
            with mark_raised_alike():
                self._skipped.count(record)

    def _evaluate(self, stop_requested: Callable[[], bool]) -> bool:
        """Evaluate if it is due and no rank asks to stop; return True if the checkpoint of this step is the best."""
        trainer, before = self._trainer, self._checkpoints.selection
        missing = self._evaluations.missing(trainer.step, trainer.unit.ends, before)
        if not missing or trainer.world.any(stop_requested()):
            return False
        self._log()
        due = self._evaluations.due(trainer.step, trainer.unit.ends)
        record = self._evaluations.measure(trainer, *due, self._run.directory)
        if self._metrics:
            self._metrics.write({"step": trainer.step, **record})
        selection = before.add_evaluation(trainer.step, record)
        self._checkpoints.selection = selection
        improved = selection.step == trainer.step
        shown = self._evaluations.describe(record)
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
