"""Folders of artefacts, and tables of rows."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.documents import DocumentSet
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PredictionSet
from pipelines.pages import table as tables
from pipelines.pages.catalog import Entry, find_entries
from pipelines.pages.document_rows import DocumentRows
from pipelines.pages.filters import Filter
from pipelines.pages.page import Measure
from pipelines.pages.pair_rows import PairRows, System
from pipelines.pages.table import Table, histogram
from pipelines.view.overview import HEIGHT, draw_graph
from tests.artefacts import make_corpus, make_documents, make_pairs, make_predictions
from tests.pipelines.pages.invented import make_run
from trainer.data.config import SourceConfig


@pytest.fixture(scope="module")
def root(made, tmp_path_factory) -> Path:
    """Copies of the artefacts in folders of their own, a run, an unfinished job, and a damaged manifest."""
    root = tmp_path_factory.mktemp("root")
    for name, folder in made.items():
        shutil.copytree(folder, root / "data" / name)
    mixture = [SourceConfig(name="a", corpus=str(root / "data/corpus"), masks=str(root / "data/spans"))]
    make_run(str(root / "runs" / "one"), mixture, made["corpus"])
    make_predictions(str(root / "answers"), f"{root}/data/pairs", run="one")
    (root / "half" / "_work").mkdir(parents=True)
    (root / "model").mkdir()
    for name in ("manifest.json", "model.safetensors"):
        (root / "model" / name).write_text('{"format": "farspan.model"}')
    shutil.copytree(made["pairs"], root / "broken")
    (root / "broken" / "manifest.json").write_text("{")
    return root


def test_all_are_found_with_their_parents(root):
    entries = {entry.title: entry for entry in find_entries([str(root)])}
    assert {title: (entry.kind, entry.state) for title, entry in entries.items()} == {
        "answers": ("predictions", "finished"),
        "broken": ("artefact", "unreadable"),
        "data/corpus": ("corpus", "finished"),
        "data/documents": ("documents", "finished"),
        "data/first": ("predictions", "finished"),
        "data/pairs": ("pairs", "finished"),
        "data/second": ("predictions", "finished"),
        "data/sentences": ("masks", "finished"),
        "data/spans": ("masks", "finished"),
        "half": ("job", "unfinished"),
        "model": ("model", "finished"),
        "runs/one": ("run", "stopped"),
    }
    assert {entry.name: set(entry.parents) for entry in entries.values() if entry.parents} == {
        "answers": {"pairs", "one"},
        "first": {"pairs"},
        "pairs": {"documents"},
        "second": {"pairs"},
        "sentences": {"corpus"},
        "spans": {"corpus"},
        "one": {"corpus", "spans"},
    }
    assert entries["data/spans"].rows == 2 * entries["data/corpus"].rows
    assert entries["data/corpus"].size > 0


def test_of_equal_artefacts_the_parent_is_the_one_that_was_used(tmp_path):
    documents = make_documents(str(tmp_path / "one"), shards=1)
    make_pairs(str(tmp_path / "pairs"), documents, pairs=3)
    shutil.copytree(documents, tmp_path / "two")
    assert {entry.name: entry.parents for entry in find_entries([str(tmp_path)])}["pairs"] == ("one",)


def test_equal_names_are_told_apart(root, made, tmp_path):
    make_corpus(str(tmp_path / "corpus"), seed=1)
    assert [entry.name for entry in find_entries([made["corpus"], str(tmp_path)])] == ["corpus", "corpus-2"]
    with pytest.raises(FarspanError, match="holds no artefact and no run"):
        find_entries([str(tmp_path / "nowhere")])


def test_parents_stand_left_of_what_was_made_from_them(root):
    entries = find_entries([str(root)])
    graph = draw_graph(entries)
    places = {entry.name: (x, y) for entry, x, y in graph.boxes}
    assert len(set(places.values())) == len(entries)
    for entry in entries:
        assert all(places[parent][0] < places[entry.name][0] for parent in entry.parents)
    assert len(graph.edges) == 8  # that from the corpus to the run goes through its masks
    columns: dict[int, list[int]] = {}
    for x, y in places.values():
        columns.setdefault(x, []).append(y)
    assert all(b - a > HEIGHT for ys in columns.values() for a, b in zip(sorted(ys), sorted(ys)[1:], strict=False))


def test_a_circle_of_parents_is_drawn():
    ends = [Entry(name, name, name, "run", parents=(other,)) for name, other in (("a", "b"), ("b", "a"))]
    assert len(draw_graph(ends).boxes) == 2


@pytest.fixture(params=["corpus", "documents", "predictions"])
def subject(request, made, rows):
    if request.param == "corpus":
        return rows
    if request.param == "documents":
        return DocumentRows("documents", DocumentSet(made["documents"]))
    return PairRows("second", PairSet(made["pairs"]), [System("second", PredictionSet(made["second"]))])


def column(subject, measure: Measure) -> np.ndarray:
    """The values of all rows, read one by one."""
    return np.array([measure.read(row, row + 1)[0] for row in range(len(subject))])


def listed(table: Table, wanted: Filter, sort: str = "") -> list[int]:
    """The rows on all pages."""
    numbers, start = [], 0
    while start is not None:
        page = table.page(wanted, sort, start)
        numbers += [line.row for line in page.lines]
        start = page.next
    return numbers


def test_every_column_sorts(subject):
    table = Table(subject)
    for measure in table.measures:
        values = column(subject, measure).tolist()
        for sort, descending in ((measure.key, False), (f"-{measure.key}", True)):
            expected = sorted(range(len(subject)), key=values.__getitem__, reverse=descending)
            assert listed(table, Filter(), sort) == expected


def test_every_bar_leads_to_as_many_rows_as_it_counts(subject):
    table, followed = Table(subject), 0
    for measure in table.measures:
        bars = table.histogram(measure).bars
        counts = [int(re.sub(r"^.*: |,", "", bar.label)) for bar in bars]
        assert sum(counts) == len(subject)
        assert [bar.height for bar in bars] == [count / max(counts) for count in counts]
        for bar, count in zip(bars, counts, strict=True):
            if any(bar.filter.get(name) for name in measure.filters):
                followed += 1
                known = listed(table, Filter.parse(bar.filter), f"-{measure.key}")
                if measure.title != "first source":  # a row fits by any of its documents
                    assert len(known) == count, (measure.key, bar)
    assert followed > 1


def test_a_text_is_found_in_the_order_of_the_column(subject, monkeypatch):
    word = next(text for _, text in subject.texts(0) if text).split()[0]
    wanted = Filter(text=word.upper())
    texts = ["".join(text for _, text in subject.texts(row)).casefold() for row in range(len(subject))]
    expected = [row for row, text in enumerate(texts) if word.casefold() in text]
    assert expected
    assert listed(Table(subject), wanted) == expected
    monkeypatch.setattr(tables, "TOKENS", 30)
    assert sorted(listed(Table(subject), wanted, subject.measures[0].key)) == expected


def test_long_columns_are_samples_of_whole_batches(made, monkeypatch):
    documents = DocumentRows("documents", DocumentSet(made["documents"]))
    size = documents.batch_of(0)[1]
    monkeypatch.setattr(Table, "_limit", lambda _, rows: 2 * size)
    table = Table(documents)
    assert len(documents) > 3 * size
    page = table.page(Filter(), "-tokens", 0)
    rows = listed(table, Filter(), "-tokens")
    spans = {documents.batch_of(row) for row in rows}
    assert sorted(rows) == sorted(row for span in spans for row in range(*span))
    assert page.count == page.of == len(rows) < len(documents)
    assert 0 in rows
    assert len(documents) - 1 in rows
    lengths = column(documents, table.measures[0])[rows]
    assert (np.diff(lengths) <= 0).all()
    assert table.page(Filter(source="other"), "-tokens", 0).of == len(rows)


def test_missing_values_come_last_and_count_nowhere():
    measure = Measure("f1", "F1", lambda start, stop: np.zeros(0), decimals=1)
    bars = histogram(np.array([np.nan, 1.0, 250.0, np.nan]), measure)
    assert sum(int(bar.label.rpartition(" ")[2]) for bar in bars.bars) == 2
    assert (bars.ends, bars.rows) == ("1.0 to 250.0", 4)
    assert histogram(np.array([np.nan]), measure).bars == ()
