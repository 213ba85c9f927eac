"""Tables and figure of the ablations, from invented scores."""

from __future__ import annotations

import numpy as np
import pytest

from tests.examples.scripts import load_example

parts, plan, table = load_example("ablations_parts"), load_example("ablations_plan"), load_example("ablations_table")


@pytest.fixture
def experiment(tmp_path):
    return parts.Experiment(tmp_path, plan.Scale(), (1, 2, 3), 3)


def invented(experiment, questions=40):
    """Scores with the mean of each model's place in the experiment, and other noise for each seed."""
    cells = {}
    for model, task, seed in experiment.cells():
        rng = np.random.default_rng([experiment.models.index(model), seed])
        level = 20 + 5 * experiment.models.index(model)
        hops = np.arange(questions) % 2 + 1
        values = level + rng.normal(0, 1, questions) - 10.0 * (hops == 2)
        keys = {"wiki-what": ["f1"], "chains": ["exact_match"]}.get(
            task, ["rouge/rouge1", "rouge/rouge2", "rouge/rougeL"]
        )
        scores = dict.fromkeys(keys, values)
        cells[model, task, seed] = table.Cell(scores, np.arange(questions), hops * (task == "chains"), 5.0 + seed)
    return cells


def test_rows_have_the_score_and_the_loss_of_every_seed(experiment):
    cells = invented(experiment)
    rows = table.rows_of(experiment, cells, 1, "wiki-what", plan.TABLES[1])
    assert [row.label for row in rows] == ["block", "overlap", "global", "pooling"]
    for row in rows:
        assert row.seeds == pytest.approx(
            [cells[row.model, "wiki-what", seed].scores["f1"].mean() for seed in range(3)]
        )
        assert row.losses == [5.0, 6.0, 7.0]


def test_scores_by_hops_and_by_length(experiment):
    cells = invented(experiment)
    (one, two) = table.by_hops(experiment, cells, "chains", plan.Model(attention="block"))
    assert (one[0], two[0]) == (1, 2)
    assert one[1] - two[1] == pytest.approx(10, abs=2)
    lengths = table.by_length(experiment, cells, "wiki-what", plan.Model(attention="block"))
    assert [length for length, _ in lengths] == [4.5, 14.5, 24.5, 34.5]
    assert table.by_hops(experiment, cells, "wiki-what", plan.Model(attention="block")) == []


def test_tables_and_figure(tmp_path, capsys):
    quick = parts.Experiment(tmp_path, plan.QUICK, (1, 2), 1)
    cells = invented(quick)
    table.print_tables(quick, cells)
    printed = capsys.readouterr().out
    assert [line.split(",")[:2] for line in printed.splitlines() if line.startswith("table")] == [
        ["table 2", " wiki-what"],
        ["table 1", " chains"],
    ]
    assert printed.count("2 hops") == 4
    assert printed.count("loss 5.000 (5.000)") == 8
    table.draw(quick, cells, tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text()
    assert all(f">{title}</text>" in text for title in ("table 1: chains, exact_match", "chains over hops"))
