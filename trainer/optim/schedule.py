"""The learning rate as a function of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from corpora.errors import FarspanError

_ENDLESS = ("inverse_sqrt", "constant")  # shapes that do not depend on the length of the run


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The learning-rate schedule: linear warm-up, then one of four shapes.

    Attributes:
        shape: ``polynomial`` and ``cosine`` fall until the last step; ``inverse_sqrt`` falls with
            ``sqrt(warmup_steps / step)``, for any length of the run (Vaswani et al. 2017, section 5.3);
            ``constant`` does not fall.
        warmup_steps: updates before the full learning rate; the first of them has rate 0.
        power: power of the polynomial; 1 is linear.
        end: final fraction of the learning rate, for ``polynomial`` and ``cosine``.
        steps: length of ``polynomial`` and ``cosine``; None for the length of the run, or of the stage. A longer
            schedule is cut off by the end of the run; after a shorter one the rate stays at ``end``.
    """

    shape: Literal["polynomial", "inverse_sqrt", "constant", "cosine"] = "polynomial"
    warmup_steps: int = 500
    power: float = 1.0
    end: float = 0.0
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.warmup_steps < 0 or not 0 <= self.power < math.inf or not 0 <= self.end <= 1:
            raise FarspanError(
                f"schedule: warmup_steps {self.warmup_steps} and power {self.power} must be at least 0 and finite, "
                f"end {self.end} in [0, 1]"
            )
        if self.power != 1 and self.shape != "polynomial":
            raise FarspanError(f"schedule.power is {self.power}, but schedule.shape is {self.shape!r}; leave it out")
        if self.end and self.shape in _ENDLESS:
            raise FarspanError(f"schedule.end is {self.end}, but schedule.shape is {self.shape!r}; leave it out")
        if self.steps is not None and self.shape in _ENDLESS:
            raise FarspanError(f"schedule.steps is {self.steps}, but schedule.shape is {self.shape!r}; leave it out")
        if self.steps is not None and self.steps <= self.warmup_steps:
            raise FarspanError(
                f"schedule.steps is {self.steps}, warm-up included, but schedule.warmup_steps is {self.warmup_steps}; "
                "make it longer"
            )
        if self.shape == "inverse_sqrt" and not self.warmup_steps:
            raise FarspanError(
                "schedule.shape is 'inverse_sqrt' with warmup_steps 0, by which it is scaled; set it to at least 1"
            )

    @property
    def ends_with_run(self) -> bool:
        """True if the rate falls until the end of the run, so that a longer run has another rate."""
        return self.shape not in _ENDLESS and self.steps is None


def learning_rate_factor(step: int, steps: int, schedule: ScheduleConfig) -> float:
    """Return the fraction of the full learning rate at update ``step`` (counted from 0) of ``steps``.

    ``schedule.steps`` replaces ``steps`` if given.

    The first update has rate 0, update ``warmup_steps`` the full rate; if the shape has an end, the update after the
    last one would reach it. transformers (LED, PRIMERA), fairseq (BART-LS) and Flax (PEGASUS-X) do the same.
    """
    warmup, end, steps = schedule.warmup_steps, schedule.end, schedule.steps or steps
    if step < warmup:
        return step / warmup
    left = max(steps - step, 0) / max(steps - warmup, 1)  # 1 down to 0
    match schedule.shape:
        case "polynomial":
            return end + (1 - end) * left**schedule.power
        case "cosine":
            return end + (1 - end) * (1 - math.cos(math.pi * left)) / 2
        case "inverse_sqrt":
            return math.sqrt(warmup / step)
        case "constant":
            return 1.0
