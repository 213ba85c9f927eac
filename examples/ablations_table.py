"""Tables and figure of ``ablations.py``: scores and losses of each seed, and the differences that the paper reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from corpora.schemas.pairs import open_pairs
from corpora.schemas.predictions import open_predictions
from objectives.metrics.load import load_metric
from objectives.metrics.protocol import Metric
from pipelines.figures.style import grid, label_lines, save, thousands, use_style

if TYPE_CHECKING:
    from ablations_parts import Experiment
    from ablations_plan import Model

METRICS = {"wiki-what": "f1", "wiki-lead": "rouge:primera", "chains": "exact_match"}
PAPER: Mapping[str, tuple[str, Mapping[int, Sequence[float]]]] = {
    "wiki-lead": (
        "QMSum R-1",
        {1: (35.2, 34.8, 35.4, 35.9), 2: (35.9, 34.7, 36.3, 35.7), 3: (35.9, 37.0, 37.0, 37.4, 37.0)},
    ),
    "wiki-what": (
        "Qasper F1",
        {1: (28.0, 28.0, 29.8, 30.6), 2: (30.6, 29.9, 32.8, 32.1), 3: (30.6, 34.6, 35.4, 34.4, 32.5)},
    ),
    "chains": ("QuALITY EM", {1: (31.6, 31.6, 32.5, 32.9)}),
}
"""Task -> the column of Xiong et al. 2022 that is nearest to it, and its values by table, row by row."""


class Cell(NamedTuple):
    """Scores of one model, fine-tuned on one task with one seed.

    Attributes:
        scores: key of the metric -> ``(n,)`` float64, one for each question of the test split.
        tokens: ``(n,)`` int64, document tokens of each question.
        hops: ``(n,)`` int64, hops of each question; 0 where the task has none.
        loss: mean training loss of the last quarter of the fine-tuning; models of one seed see the same examples.
    """

    scores: Mapping[str, np.ndarray]
    tokens: np.ndarray
    hops: np.ndarray
    loss: float


Cells = Mapping[tuple["Model", str, int], Cell]


@dataclass(frozen=True)
class Row:
    """A row of a table for one task.

    Attributes:
        label: of the row.
        model: its model.
        seeds: the score of each seed.
        losses: ``Cell.loss`` of each seed.
    """

    label: str
    model: Model
    seeds: Sequence[float]
    losses: Sequence[float]


def read_cells(experiment: Experiment) -> Cells:
    """Score the predictions of every model, task and seed."""
    return {cell: _read(experiment, *cell) for cell in experiment.cells()}


def _read(experiment: Experiment, model: Model, task: str, seed: int) -> Cell:
    pairs, predictions = (
        open_pairs(experiment.out / f"pairs-{task}"),
        open_predictions(experiment.predictions(model, task, seed)),
    )
    table = pairs.table(pairs.rows_of("test"))
    lengths = np.concatenate([batch.column("tokens").value_lengths().to_numpy() for batch in pairs.documents.batches()])
    attributes = [json.loads(text) for text in table.column("attributes").to_pylist()]
    scores = load_metric(METRICS[task]).scores(predictions.texts, table.column("references").to_pylist())
    return Cell(
        scores,
        np.array([lengths[rows].sum() for rows in table.column("document_rows").to_pylist()]),
        np.array([int(one.get("hops", 0)) for one in attributes]),
        _last_loss(experiment.run(model, task, seed)),
    )


def _last_loss(run: Path) -> float:
    """Mean loss of the last quarter of a run's updates."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    return float(np.mean(losses[-max(len(losses) // 4, 1) :]))


def rows_of(experiment: Experiment, cells: Cells, number: int, task: str, models: Mapping[str, Model]) -> list[Row]:
    """The rows of table ``number`` for one task."""
    metric = load_metric(METRICS[task])
    return [
        Row(
            label,
            model,
            [_value(metric, cells[model, task, seed].scores) for seed in experiment.seeds],
            [cells[model, task, seed].loss for seed in experiment.seeds],
        )
        for label, model in models.items()
    ]


def _value(metric: Metric, scores: Mapping[str, np.ndarray]) -> float:
    """The primary number of per-question scores."""
    means = {key: np.array(values.mean()) for key, values in scores.items()}
    return float(metric.combine(means)[metric.primary])


def print_tables(experiment: Experiment, cells: Cells) -> None:
    """Print a line for each row and task: mean score, seeds, loss, and score by hops."""
    for task in experiment.tasks:
        for number, models in experiment.tables_of(task).items():
            print(f"\ntable {number}, {task}, {load_metric(METRICS[task]).flavour}")
            for row in rows_of(experiment, cells, number, task, models):
                seeds = " ".join(f"{seed:5.1f}" for seed in row.seeds)
                hops = "".join(
                    f"  {number:.0f} hops {score:5.1f}" for number, score in by_hops(experiment, cells, task, row.model)
                )
                print(f"  {row.label:<12}{np.mean(row.seeds):6.1f}  ({seeds})  {_losses(row)}{hops}")


def _losses(row: Row) -> str:
    return f"loss {np.mean(row.losses):.3f} ({' '.join(f'{loss:.3f}' for loss in row.losses)})"


def by_hops(experiment: Experiment, cells: Cells, task: str, model: Model) -> list[tuple[float, float]]:
    """(Hops, score over all seeds) of the questions with each number of hops; nothing for tasks without hops."""
    hops = cells[model, task, experiment.seeds[0]].hops
    return [
        (float(number), _mean_value(experiment, cells, task, model, hops == number))
        for number in np.unique(hops)
        if number
    ]


def by_length(experiment: Experiment, cells: Cells, task: str, model: Model) -> list[tuple[float, float]]:
    """(Mean tokens of the source, score over all seeds) of four groups of questions with similar sources."""
    tokens = cells[model, task, experiment.seeds[0]].tokens
    groups = [group for group in np.array_split(np.argsort(tokens, kind="stable"), 4) if len(group)]
    return [(float(tokens[group].mean()), _mean_value(experiment, cells, task, model, group)) for group in groups]


def _mean_value(experiment: Experiment, cells: Cells, task: str, model: Model, chosen: np.ndarray) -> float:
    """The primary number of the chosen questions, from the mean of the seeds."""
    runs = [cells[model, task, seed].scores for seed in experiment.seeds]
    means = {key: np.mean([run[key][chosen] for run in runs], axis=0) for key in runs[0]}
    return _value(load_metric(METRICS[task]), means)


def draw(experiment: Experiment, cells: Cells, path: Path) -> None:
    """Draw two panels for each table and task, and one for each task with the score over source length, or over hops.

    On the left, a dot is a seed's score less the mean of the first row; the grey tick is the paper's difference, in the
    column that is nearest to the task. On the right, a dot is the difference of a seed's training loss to the first
    row with the same seed.
    """
    tasks, numbers = experiment.tasks, list(experiment.chosen)
    columns = 2 * len(tasks)
    with use_style() as plt:
        figure, axes = grid(plt, columns * (len(numbers) + 1), columns=columns, panel=(3.2, 2.1))
        for column, task in enumerate(tasks):
            tables = experiment.tables_of(task)
            scores, losses = axes[2 * column :: columns], axes[2 * column + 1 :: columns]
            for left, right, number in zip(scores, losses, numbers, strict=False):  # the last ones are of the curves
                if number in tables:
                    rows = rows_of(experiment, cells, number, task, tables[number])
                    _panel(left, rows, _reported(task, number), f"table {number}: {task}, {METRICS[task]}")
                    _loss_panel(right, rows, f"table {number}: {task}, training loss")
                else:
                    left.axis("off")
                    right.axis("off")
            _curves(scores[-1], experiment, cells, task)
            losses[-1].axis("off")
        save(plt, figure, str(path))


def _reported(task: str, number: int) -> Sequence[float]:
    """The paper's differences to the first row; none where it has no such column."""
    values = PAPER[task][1].get(number, ())
    return [value - values[0] for value in values]


def _panel(axis: Any, rows: Sequence[Row], paper: Sequence[float], title: str) -> None:
    base = float(np.mean(rows[0].seeds))
    for place, row in enumerate(rows):
        axis.plot(
            [seed - base for seed in row.seeds], [place] * len(row.seeds), "o", color="C0", markersize=3, alpha=0.6
        )
        if place < len(paper):
            axis.plot(paper[place], place, "|", color="0.5", markersize=9)
    _finish(axis, rows, title, f"difference to {rows[0].label} ({base:.1f})")


def _loss_panel(axis: Any, rows: Sequence[Row], title: str) -> None:
    for place, row in enumerate(rows):
        differences = [loss - first for loss, first in zip(row.losses, rows[0].losses, strict=True)]
        axis.plot(differences, [place] * len(differences), "o", color="C1", markersize=3, alpha=0.6)
    axis.locator_params(axis="x", nbins=4)
    _finish(axis, rows, title, f"difference to {rows[0].label} ({np.mean(rows[0].losses):.2f})")


def _finish(axis: Any, rows: Sequence[Row], title: str, label: str) -> None:
    """Label a panel that has a line for each row of a table."""
    axis.axvline(0, color="0.8", linewidth=0.8, zorder=0)
    axis.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=7)
    axis.grid(visible=False, axis="y")
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_title(title)
    axis.set_xlabel(label)


def _curves(axis: Any, experiment: Experiment, cells: Cells, task: str) -> None:
    """Draw the score over hops, or over the length of the source, for the rows of the task's first table."""
    over = "hops" if task == "chains" else "the length of the source"
    ends = []
    for number, (label, model) in enumerate(next(iter(experiment.tables_of(task).values())).items()):
        points = (by_hops if task == "chains" else by_length)(experiment, cells, task, model)
        axis.plot(*zip(*points, strict=True), marker=".", color=f"C{number % 7}")
        ends.append((*points[-1], label, f"C{number % 7}"))
    label_lines(axis, ends)
    axis.set_title(f"{task} over {over}")
    axis.set_xlabel("hops" if task == "chains" else "document tokens")
    if task == "chains":
        axis.xaxis.get_major_locator().set_params(integer=True)
    else:
        axis.xaxis.set_major_formatter(lambda value, _: thousands(value))
    axis.set_ylabel("score")
