"""Options of the commands about training runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from corpora.options import Flag
from corpora.reporting import TableFormat


@dataclass(frozen=True, kw_only=True)
class Runs(TableFormat):
    """Options of ``farspan runs``.

    Attributes:
        folder: folder with runs of ``farspan train``, at any depth, or a run.

    Examples:
        farspan runs runs
    """

    folder: Annotated[str, Flag(positional=True)]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Options of ``farspan plot``.

    Draws loss, held-out loss, learning rate, gradient norm and speed of runs, and marks their restarts. For each update
    whose loss is far above that of the updates before, it prints the command that shows the rows of that update. A
    folder with nothing but TensorBoard's event files can be drawn, too.

    Attributes:
        run: runs of ``farspan train``.
        figure: file to draw.
        metric: metric to draw; repeat it for several (default: all).
        over: horizontal axis: updates, or source tokens seen.
        smooth: number of updates that the smoothed line averages.

    Examples:
        farspan plot runs/a runs/b --over tokens --figure curves.svg
        farspan plot runs/a --metric loss --metric held_out_loss
    """

    run: Annotated[tuple[str, ...], Flag(positional=True)]
    figure: Annotated[str, Flag(metavar="FILE.svg")] = "curves.svg"
    metric: tuple[str, ...] = ()
    over: Literal["steps", "tokens"] = "steps"
    smooth: Annotated[int, Flag(least=1)] = 25
