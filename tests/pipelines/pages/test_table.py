"""Tables of rows: order, filters, histograms and samples, each against a count over all rows."""

from __future__ import annotations

import re

import numpy as np
import pytest

from corpora.schemas.documents import DocumentSet
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PredictionSet
from pipelines.pages import table as tables
from pipelines.pages.document_rows import DocumentRows
from pipelines.pages.filters import Filter
from pipelines.pages.measures import Measure, histogram
from pipelines.pages.pair_rows import PairRows, System
from pipelines.pages.table import Table


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
            expected = sorted(range(len(subject)), key=lambda row: values[row], reverse=False)
            if descending:
                expected = [
                    row for value in sorted(set(values), reverse=True) for row in expected if values[row] == value
                ]
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
    word = subject.beginning(0)[1].split()[0]
    wanted = Filter(text=word.upper())
    expected = [
        row
        for row in range(len(subject))
        if word.casefold() in "".join(text for _, text in subject.texts(row)).casefold()
    ]
    assert expected
    assert listed(Table(subject), wanted) == expected
    monkeypatch.setattr(tables, "TOKENS", 30)
    key = subject.measures[0].key
    assert sorted(listed(Table(subject), wanted, key)) == expected


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
