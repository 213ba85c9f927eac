"""The cells of docs/tutorial.ipynb, run in order; the pages of docs/howto with Python."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOTEBOOK = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text("utf-8"))
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_has_no_outputs():
    assert NOTEBOOK["nbformat"] == 4
    code = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


# the smallest books, rows and runs with which every cell works
SMALL = {
    "BOOKS, STEPS, TUNING_STEPS = 160, 30, 120": "BOOKS, STEPS, TUNING_STEPS = 40, 2, 2",
    "range(14)": "range(5)",
    '"schedule.warmup_steps": 5': '"schedule.warmup_steps": 1',
    "256": "64",
    "1024": "256",
}


def test_all_cells_run_with_little(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for cell in CELLS:
        for full, small in SMALL.items():
            cell = cell.replace(full, small)
        exec(cell, names)
    printed = capsys.readouterr().out
    assert "40 books" in printed
    assert "target" in printed  # of the row that is shown
    assert printed.count("2 updates") == 2
    assert "rouge/rouge1: " in printed
    made = {path.parent.name for path in tmp_path.glob("*/manifest.json")}
    assert made == {
        "documents", "corpus", "held-out", "masks", "held-out-masks", "stories", "pairs", "predictions"
    }  # fmt: skip


@pytest.mark.slow
def test_the_notebook_runs_as_it_stands_in_a_kernel(tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(ROOT / "docs" / "tutorial.ipynb", as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    client = nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=environment)
    printed = "".join(output.get("text", "") for cell in notebook.cells[-3:] for output in cell.get("outputs", []))
    score = float(re.search(r"rouge/rouge1: ([\d.]+)", printed)[1])
    assert score > 70  # 60 without a look at the books


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


def test_the_reader_of_the_guide_reads_records_and_rejects(tmp_path, monkeypatch):
    from corpora.readers import Range, ReadOptions
    from corpora.readers.blocks import BlockBuilder
    from corpora.storage import files

    (code,) = blocks("docs/howto/readers.md")
    names: dict = {}
    exec(code, names)
    path = tmp_path / "a.fortunes"
    path.write_bytes(b"One.\nTwo.\n%%\nThree.\n%%\n\xff\n%%\n")
    size = path.stat().st_size
    (cut,) = names["READER"].plan(str(path), files, 1)
    block = BlockBuilder(str(path), ReadOptions())
    list(names["READER"].read(Range(str(path), "fortunes", *cut, size), files, block))
    found = block.take(size)
    assert found.texts == ["One.\nTwo.", "Three."]
    assert [reject.reason for reject in found.rejects] == ["invalid_utf8"]
