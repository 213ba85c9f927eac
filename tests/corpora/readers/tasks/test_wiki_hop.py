"""WikiHop: one array of queries with supports and candidates."""

from __future__ import annotations

import json

from corpora.readers import ReadOptions
from corpora.readers.selection import holds_records
from corpora.readers.task_data.declaration import text_key
from tests.corpora.readers.tasks import read_documents, read_pairs, rejected_pairs

HOP = ReadOptions(format="wiki-hop")
QUERY = {
    "id": "WH_train_0",
    "query": "located_in lamp museum",
    "answer": "tin town",
    "candidates": ["coal city", "tin town"],
    "supports": ["The lamp museum is in Tin Town.", "Coal City is big."],
}


def write(path, *queries):
    path.write_text(json.dumps(queries))
    return path


def test_supports_are_documents_shared_by_queries(tmp_path):
    other = {**QUERY, "id": "WH_train_1", "supports": QUERY["supports"][:1]}
    path = write(tmp_path / "train.json", QUERY, other)
    assert read_documents(path, HOP) == {text_key(text): text for text in QUERY["supports"]}
    first, second = read_pairs(path, HOP)
    assert first.documents == tuple(map(text_key, QUERY["supports"]))
    assert second.documents == first.documents[:1]
    assert (first.query, first.targets, first.options) == (QUERY["query"], ("tin town",), ("coal city", "tin town"))
    assert (first.pair_id, first.split) == ("WH_train_0", "train")


def test_masked_files_of_a_folder_are_left_out():
    assert holds_records("qangaroo/wikihop/dev.json", HOP)
    assert not holds_records("qangaroo/wikihop/dev.masked.json", HOP)


def test_bad_queries_are_rejected(tmp_path):
    path = write(
        tmp_path / "dev.json",
        {**QUERY, "supports": []},
        {**QUERY, "answer": "moon"},
        {**QUERY, "candidates": None},
        {**QUERY, "query": " "},
        {"id": 1},
        3,
    )
    reasons = [reason for _, reason in rejected_pairs(path, HOP)]
    assert reasons == ["empty_text", "unknown_label", "null_text", "empty_text", "missing_text", "not_an_object"]
