"""Pages in a notebook's cell: rows, runs, opened artefacts, and rows as a DataFrame."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("jinja2")

import farspan
from corpora.errors import FarspanError
from corpora.storage.sharded_rows import ShardedRows
from tests.pipelines.test_runs import make_run
from trainer.checkpoint.run_files import RECIPE

OPENED = {"corpus": "open_corpus", "spans": "open_masks", "documents": "open_documents", "pairs": "open_pairs",
          "first": "open_predictions"}  # fmt: skip


def test_a_cell_shows_rows_as_one_page_in_a_frame(made, tmp_path):
    cell = farspan.view(made["spans"], row=2, count=2)
    assert repr(cell) == f"Cell(2 rows of {made['corpus']})"
    html = cell._repr_html_()
    assert html.startswith('<iframe sandbox="allow-scripts"')
    assert html.count("<") == 2  # the page is text in an attribute: nothing of it can leave the frame
    assert cell.save(tmp_path / "page.html").read_text() == cell.html
    with pytest.raises(FarspanError, match="has rows 0 to"):
        farspan.view(made["spans"], row=10**6)
    run = make_run(tmp_path / "run")
    (run / RECIPE).write_text("{}")
    assert repr(farspan.view(run)) == "Cell(1 run)"


@pytest.mark.parametrize(("name", "opener"), OPENED.items())
def test_an_opened_artefact_shows_its_first_row(made, monkeypatch, name, opener):
    rows = getattr(farspan, opener)(made[name])
    assert rows._repr_html_().startswith("<iframe")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert rows._repr_html_() is None  # the notebook then prints the description
    monkeypatch.setattr(ShardedRows, "as_html", None)
    assert rows._repr_html_() is None


@pytest.mark.parametrize(("name", "opener"), OPENED.items())
def test_rows_as_a_data_frame(made, monkeypatch, name, opener):
    pytest.importorskip("pandas")
    rows = getattr(farspan, opener)(made[name])
    whole = rows.to_pandas()
    assert len(whole) == len(rows)
    assert list(whole) == list(rows[0])
    for column in ("tokens", "span_starts", "pair_id", "text"):
        if column in rows[0]:
            assert all(np.array_equal(one, row[column]) for one, row in zip(whole[column], rows, strict=True))
            (last,) = rows.to_pandas([len(rows) - 1])[column]
            assert np.array_equal(last, rows[-1][column])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FarspanError, match="pip install pandas"):
        rows.to_pandas()


def test_runs_and_recipes_are_functions(tmp_path):
    make_run(tmp_path / "a")
    assert [run["run"] for run in farspan.runs(tmp_path)] == ["a"]
    assert {"recipe": "bart_ls_base", "width": 768}.items() <= next(
        row for row in farspan.recipes() if row["recipe"] == "bart_ls_base"
    ).items()
