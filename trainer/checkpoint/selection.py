"""The recipe's section on checkpoints, and the selection of the best one: the evaluations of a run so far.

Every checkpoint's manifest has the selection. A run that is resumed continues with that of its checkpoint, so it
chooses what a run that was never interrupted chooses. ``best.json`` beside the checkpoints repeats the newest selection
for people and scripts; farspan does not read it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError
from trainer.checkpoint.files import checkpoints_in, read_manifest, step_of
from trainer.checkpoint.run_files import DamagedError, write_sealed


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Intervals of checkpoints, and the choice of those that are kept.

    Attributes:
        every: steps between checkpoints; the last step always has one.
        keep: number of newest checkpoints to keep.
        keep_every: also keep those whose step is a multiple of this; None for none.
        asynchronous: write checkpoints while training continues.
        best: metric of an evaluation, e.g. ``rouge/geometric_mean`` or ``held_out_loss``. An evaluation that improves
            it writes a checkpoint, which is kept beside the newest until a better one is written. Losses and
            perplexities are better if smaller, everything else if larger; of equal values the earlier is best.
    """

    every: int = 1000
    keep: int = 3
    keep_every: int | None = None
    asynchronous: bool = True
    best: str | None = None

    def __post_init__(self) -> None:
        for name in ("every", "keep", "keep_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FarspanError(f"checkpoint.{name} is {value}; it must be at least 1")


BEST = "best.json"
_NEWEST, _BEST = "newest", "best"


@dataclass(frozen=True)
class Selection:
    """The evaluations of a run up to some step. Of equal values the earlier is best."""

    metric: str | None = None  # chooses the best checkpoint; None if none does
    evaluated: int = 0  # step of the last evaluation; 0 before the first
    step: int | None = None  # of the best evaluation, as value; None before the first
    value: float | None = None
    since: int = 0  # values of the metric measured since the best one

    @classmethod
    def of_manifest(cls, manifest: Mapping[str, Any], metric: str | None) -> Selection:
        """The selection in a checkpoint's manifest; without its best if that was chosen by another metric."""
        stored = manifest["selection"]
        if stored["metric"] != metric:
            return cls(metric, stored["evaluated"])
        return cls(**{field.name: stored[field.name] for field in fields(cls)})

    def add_evaluation(self, step: int, metrics: Mapping[str, Any]) -> Selection:
        """The selection after the evaluation of ``step``."""
        now = replace(self, evaluated=step)
        if self.metric is None or self.metric not in metrics:
            return now
        value = metrics[self.metric]
        if value is None or not math.isfinite(value) or not self._is_better(value):
            return replace(now, since=self.since + 1)
        return replace(now, step=step, value=float(value), since=0)

    def ends_run(self, patience: int | None) -> bool:
        """True if ``patience`` values in a row, if it is set, were no better than the best."""
        return patience is not None and self.since >= patience

    def _is_better(self, value: float) -> bool:
        if self.value is None:
            return True
        return value < self.value if is_loss(str(self.metric)) else value > self.value


def is_loss(metric: str) -> bool:
    """True for metrics whose smaller values are better: losses and perplexities on held-out data."""
    return metric.partition("/")[0] in ("held_out_loss", "held_out_perplexity")


def write_best(directory: Path, selection: Selection) -> None:
    """Write ``best.json`` of a folder of checkpoints, if there is a best one."""
    if selection.step is not None:
        values = {"metric": selection.metric, "step": selection.step, "value": selection.value}
        write_sealed(directory / BEST, values)


def find_checkpoint(path: Path, which: str = _NEWEST) -> Path:
    """The folder of one checkpoint of a run, or of the checkpoint ``path`` itself."""
    checkpoints = checkpoints_in(path)
    if not checkpoints:
        raise FarspanError(f"{path}: holds no checkpoint; give a run of `farspan train`")
    if which == _NEWEST:
        return next(filter(_readable, checkpoints), checkpoints[0])
    steps = {step_of(one): one for one in checkpoints}
    known = ", ".join(map(str, sorted(steps)))
    if which == _BEST:
        newest = next(filter(_readable, checkpoints), None)
        selection = read_manifest(newest)["selection"] if newest else None
        if selection is None or selection["step"] is None:
            raise FarspanError(
                f"{path}: the run chose no best checkpoint; give newest or a step ({known}), or train with "
                "checkpoint.best set to a metric"
            )
        if selection["step"] not in steps:
            raise FarspanError(f"{path}: its best checkpoint, of step {selection['step']}, is gone; it has {known}")
        return steps[selection["step"]]
    if not which.isdigit() or int(which) not in steps:
        raise FarspanError(f"{path}: no checkpoint {which!r}; give newest, best or one of the steps {known}")
    return steps[int(which)]


def best_steps(checkpoints: list[Path]) -> set[int]:
    """Steps of the checkpoints that were best when those in ``checkpoints`` were written."""
    selections = [read_manifest(path)["selection"] for path in checkpoints if _readable(path)]
    return {found["step"] for found in selections if found["step"] is not None}


def _readable(checkpoint: Path) -> bool:
    try:
        read_manifest(checkpoint)
    except DamagedError:
        return False
    return True
