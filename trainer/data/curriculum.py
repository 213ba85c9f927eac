"""The curriculum: consecutive stages of training with the same weights, short rows first, long ones later.

PEGASUS-X goes from 512 to 4,096 tokens and compares several divisions of the steps (Phang et al. 2022,
arXiv:2208.04347, section 3.6). Longformer has five phases, each with twice the length and window and half the learning
rate of the one before (Beltagy et al. 2020, arXiv:2004.05150). No weight's shape depends on the length of rows or the
size of a window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from corpora.errors import FarspanError
from trainer.data.config import DataConfig
from trainer.model.config import ModelConfig
from trainer.model.patterns import AnyPattern
from trainer.optim.schedule import ScheduleConfig, learning_rate_factor


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """A stage: consecutive updates and the values that override the recipe's; None keeps the recipe's value.

    Attributes:
        steps: updates of the stage; the steps of all stages add up to ``run.steps``.
        tokens: input tokens of the stage, instead of ``steps``, as in the run section.
        data: data section; keys that a file leaves out have the values of the recipe's own section.
        attention: the encoder's pattern.
        batch_size, micro_batch_size: as in the run section.
        learning_rate: as in the optimizer section.
        schedule: schedule of this stage alone, counted from its beginning; None continues that of the whole run.
    """

    steps: int | None = None
    tokens: int | None = None
    data: DataConfig | None = None
    attention: AnyPattern | None = None
    batch_size: int | None = None
    micro_batch_size: int | None = None
    learning_rate: float | None = None
    schedule: ScheduleConfig | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.tokens is None):
            raise FarspanError(
                f"stages: {'neither steps nor tokens is' if self.steps is None else 'both steps and tokens are'} set; "
                "give each stage one of them"
            )
        for name in ("steps", "tokens", "batch_size", "micro_batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FarspanError(f"stages: {name} is {value}; it must be at least 1")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise FarspanError(f"stages: learning_rate is {self.learning_rate}; it must be above 0 and finite")
        if self.schedule and self.steps and self.schedule.warmup_steps > self.steps:
            raise FarspanError(
                f"stages: schedule.warmup_steps is {self.schedule.warmup_steps} in a stage of {self.steps} steps; warm "
                "up for fewer"
            )


@dataclass(frozen=True)
class Stage:
    """A stage with every value filled in: updates ``first_step .. last_step - 1``, counted from 0 over the run.

    It continues with the samples where the last stage with the same data stopped, else at sample 0 of its sources.
    """

    first_step: int
    last_step: int
    first_sample: int
    data: DataConfig
    model: ModelConfig  # with the encoder attention of this stage
    batch_size: int
    micro_batch_size: int
    learning_rate: float
    schedule: ScheduleConfig
    schedule_start: int  # update at which the schedule starts
    schedule_steps: int  # its length
    section: str  # of the recipe, which holds data

    @property
    def attention(self) -> AnyPattern:
        """The encoder's pattern in this stage."""
        return self.model.encoder.attention

    def samples(self, step: int) -> range:
        """Numbers of the samples of update ``step`` in the order of the stage's sources."""
        first = self.first_sample + (step - self.first_step) * self.batch_size
        return range(first, first + self.batch_size)

    def learning_rate_at(self, step: int) -> float:
        """The learning rate of update ``step``, counted from 0 over the run."""
        return self.learning_rate * learning_rate_factor(step - self.schedule_start, self.schedule_steps, self.schedule)

    def extend(self, steps: int) -> Stage:
        """A stage of ``steps`` updates that follows this one with the same values and a longer schedule."""
        return replace(
            self,
            first_step=self.last_step,
            last_step=self.last_step + steps,
            first_sample=self.samples(self.last_step).start,
            schedule_steps=self.schedule_steps + steps,
        )


def stage_number(curriculum: Sequence[Stage], step: int) -> int:
    """Index of the stage that update ``step`` (counted from 0) belongs to; the last stage for later updates."""
    return next((number for number, stage in enumerate(curriculum) if step < stage.last_step), len(curriculum) - 1)
