"""Pairs of one's own, as JSON lines and Parquet with the same records."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpora.readers import ReadOptions
from corpora.readers.options import PairFields
from corpora.readers.task_data.declaration import text_key
from tests.corpora.readers.tasks import read_documents, read_pairs, rejected_pairs, write_lines

MINE = ReadOptions(format="pairs")
RECORDS = [
    {"id": 1, "document": "One text.", "query": "Which?", "answers": ["This.", "That."], "split": "dev", "hops": 2},
    {"id": 2, "document": "One text.", "query": "Why?", "answers": ["So."], "split": "train", "hops": 1},
    {"id": 3, "document": "Other text.", "query": None, "answers": None, "split": "test", "hops": None},
]


def test_json_lines_and_parquet_give_the_same_pairs(tmp_path):
    lines = write_lines(tmp_path / "mine.jsonl", RECORDS)
    table = tmp_path / "mine.parquet"
    pq.write_table(pa.Table.from_pylist(RECORDS), table, row_group_size=2)
    pairs = read_pairs(lines, MINE)
    assert read_pairs(table, MINE) == read_pairs(table, MINE, 1) == pairs
    assert read_documents(table, MINE) == read_documents(lines, MINE)
    assert set(read_documents(lines, MINE).values()) == {"One text.", "Other text."}
    assert [(one.pair_id, one.query, one.targets, one.split) for one in pairs] == [
        ("1", "Which?", ("This.", "That."), "dev"),
        ("2", "Why?", ("So.",), "train"),
        ("3", "", (), "test"),
    ]
    assert pairs[0].documents == pairs[1].documents == (text_key("One text."),)
    assert pairs[0].attributes == {"hops": 2}


def test_names_of_fields_are_options(tmp_path):
    record = {"body": "A text.", "url": "u", "q": "Which?", "gold": "This.", "choices": ["This.", "That."], "n": "x"}
    path = write_lines(tmp_path / "train.jsonl", [record, {**record, "gold": "That one."}])
    fields = PairFields(query_field="q", reference_field="gold", options_field="choices", pair_id_field="n")
    options = ReadOptions(format="pairs", text_field="body", id_field="url", pairs=fields)
    assert read_documents(path, options) == {"u": "A text."}
    first, second = read_pairs(path, options)
    assert (first.pair_id, first.documents, first.options) == ("x", ("u",), ("This.", "That."))
    assert (first.targets, second.targets, first.split) == (("This.",), ("That one.",), "train")
    assert first.attributes == {}
    without = replace(options, pairs=replace(fields, pair_id_field=None))
    a, b = read_pairs(path, without)
    assert a.pair_id == b.pair_id != "x", "equal questions about equal documents are one pair"


def test_a_question_is_a_query(tmp_path):
    records = [{"document": "A text.", "question": word, "answer": "So."} for word in ("Why?", "How?")]
    first, second = read_pairs(write_lines(tmp_path / "train.jsonl", records), MINE)
    assert (first.query, second.query, first.attributes) == ("Why?", "How?", {})
    assert first.pair_id != second.pair_id, "two questions about a document are two pairs"


@pytest.mark.parametrize("empty", [{"query": None}, {"references": None}, {"query": None, "reference": None}])
def test_a_field_without_a_value_hides_no_other_name_for_it(tmp_path, empty):
    record = {"document": "A text.", "question": "Why?", "answer": "So."}
    (pair,) = read_pairs(write_lines(tmp_path / "train.jsonl", [{**empty, **record}]), MINE)
    assert (pair.query, pair.targets) == ("Why?", ("So.",))


def test_a_record_without_the_named_query_is_rejected(tmp_path):
    path = write_lines(tmp_path / "train.jsonl", [{"document": "A text.", "question": "Why?", "answer": "So."}])
    options = replace(MINE, pairs=PairFields(query_field="ask"))
    assert [reason for _, reason in rejected_pairs(path, options)] == ["missing_query"]


def test_a_pair_may_have_several_documents_with_ids(tmp_path):
    record = {"documents": ["One.", "Two."], "document_id": ["a", 2], "references": "Both.", "id": "x"}
    path = write_lines(tmp_path / "test.jsonl", [record])
    assert read_documents(path, MINE) == {"a": "One.", "2": "Two."}
    assert read_pairs(path, MINE)[0].documents == ("a", "2")


def test_values_that_json_cannot_hold_become_text(tmp_path):
    path = tmp_path / "train.parquet"
    day = datetime.date(2020, 2, 29)
    row = {"document": "A.", "answer": "B.", "day": day, "score": float("nan"), "tags": [{"x": 1.5}]}
    pq.write_table(pa.Table.from_pylist([row]), path)
    assert read_pairs(path, MINE)[0].attributes == {"day": "2020-02-29", "score": None, "tags": [{"x": 1.5}]}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"document": None}, "missing_text"),
        ({"document": 3}, "not_a_string"),
        ({"document": " "}, "empty_document"),
        ({"answers": [1]}, "not_a_string"),
        ({"query": ["a", "b"]}, "not_a_string"),
        ({"id": ""}, "missing_id"),
        ({"document_id": ["a", "b"]}, "missing_id"),
    ],
)
def test_bad_records_are_rejected_and_their_neighbours_kept(tmp_path, changed, reason):
    path = write_lines(tmp_path / "mine.jsonl", [{**RECORDS[0], **changed}, RECORDS[1]])
    assert rejected_pairs(path, MINE) == [("0", reason)]
