"""The recipe's section on checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from corpora.errors import FarspanError


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
