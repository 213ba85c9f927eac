"""Records of all formats: clusters and their names, ids, and what is rejected."""

from __future__ import annotations

import json

from corpora.readers import ReadOptions
from tests.corpora.readers import InMemory, read_all, reasons


def jsonl(rows) -> InMemory:
    return InMemory(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def test_a_list_of_texts_is_a_cluster():
    rows = [{"text": ["One.", "Two."]}, {"text": "Alone."}, {"text": ["Only one."]}]
    block = read_all("a.jsonl", files=jsonl(rows))
    second = len(json.dumps(rows[0])) + 1
    third = second + len(json.dumps(rows[1])) + 1
    assert block.texts == ["One.", "Two.", "Alone.", "Only one."]
    assert block.keys == ["0.0", "0.1", str(second), f"{third}.0"]
    assert block.clusters == ["0", "0", None, str(third)]


def test_bad_documents_of_a_cluster_are_rejected_one_by_one():
    rows = [{"text": ["One.", "", None, 7, " ", "half \ud83d", ["x"], "Two."]}, {"text": []}]
    block = read_all("a.jsonl", files=jsonl(rows))
    assert dict(zip(block.keys, block.texts, strict=True)) == {"0.0": "One.", "0.7": "Two."}
    second = str(len(json.dumps(rows[0])) + 1)
    assert reasons(block) == [
        ("0.1", "empty_text"),
        ("0.2", "null_text"),
        ("0.3", "not_a_string"),
        ("0.4", "empty_text"),
        ("0.5", "invalid_utf8"),
        ("0.6", "not_a_string"),
        (second, "empty_cluster"),
    ]
    assert [reject.raw for reject in block.rejects[1:3]] == [b"None", b"7"]
    assert block.read == 9


def test_ids_of_the_users_own():
    rows = [{"text": ["One.", "", "Two."], "key": "k"}, {"text": "Three.", "key": 3}, {"text": ["x", "y"]}]
    block = read_all("a.jsonl", ReadOptions(id_field="key"), files=jsonl(rows))
    assert block.ids == ["k.0", "k.2", "3"]
    assert [reason for _, reason in reasons(block)] == ["empty_text", "missing_id"]


def test_a_field_has_the_title():
    """On one line; a missing, null or blank title is none, and one that is no text rejects its record."""
    rows = [
        {"text": "One.", "title": " Of \n\tships\u00a0and  tides "},
        {"text": "Two."},
        {"text": "Three.", "title": None},
        {"text": "Four.", "title": " \n"},
        {"text": ["Five.", "", "Six."], "title": "Both"},
        {"text": "x", "title": 7},
        {"text": "x", "title": ["a"]},
        {"text": "x", "title": "half \ud83d"},
    ]
    block = read_all("a.jsonl", ReadOptions(title_field="title"), files=jsonl(rows))
    assert block.texts == ["One.", "Two.", "Three.", "Four.", "Five.", "Six."]
    assert block.titles == ["Of ships and tides", None, None, None, "Both", "Both"]
    assert [reason for _, reason in reasons(block)] == ["empty_text", "not_a_string", "not_a_string", "invalid_utf8"]
    assert "'title' is of type int" in block.rejects[1].detail
    assert read_all("a.jsonl", files=jsonl(rows)).titles is None


def test_a_field_names_the_cluster():
    rows = [
        {"text": "One.", "topic": "a"},
        {"text": "Two.", "topic": 7},
        {"text": "Three.", "topic": "a"},
        {"text": ["Four.", "Five."], "topic": "b"},
        {"text": "Six.", "topic": None},
        {"text": "Seven."},
        {"text": "x", "topic": ["a"]},
        {"text": "x", "topic": True},
        {"text": "x", "topic": ""},
    ]
    block = read_all("a.jsonl", ReadOptions(cluster_field="topic"), files=jsonl(rows))
    assert block.clusters == ["a", "7", "a", "b", "b", None, None]
    assert [reason for _, reason in reasons(block)] == ["missing_cluster"] * 3
