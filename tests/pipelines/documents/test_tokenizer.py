"""``farspan tokenizer train``: raw text is read as for documents, and nothing is left out silently."""

from __future__ import annotations

import json

import pytest


def lines(path, *records):
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records))
    return path


def test_bad_records_are_counted(tmp_path, run):
    path = lines(tmp_path / "raw.jsonl", {"text": 3}, "{bad", {"text": "hello hello hello"})
    status, printed, _ = run("tokenizer", "train", "--input", path, "--vocab-size", 260, "--output", tmp_path / "made")
    assert status == 0
    assert printed.strip().endswith("; 2 bad records left out: broken_json 1, not_a_string 1")


def test_a_vocabulary_that_the_text_does_not_fill_is_said(tmp_path, run):
    path = lines(tmp_path / "raw.jsonl", {"text": "hello hello hello"})
    flags = ("--vocab-size", 8000, "--output", tmp_path / "made", "--log-format", "json")
    status, printed, _ = run("tokenizer", "train", "--input", path, *flags)
    assert status == 0
    assert json.loads(printed)["message"].endswith("; fewer than 8,000, as the text has no more")


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"body": "some text", "n": 1}], "no field 'text' in {path}; its fields: body, n; give --text-field body"),
        ([{"text": None}], "--input {path}: no text to train a tokenizer on; 1 bad record left out: null_text 1"),
        ([], "--input {path}: no text to train a tokenizer on"),
    ],
)
def test_inputs_without_text_are_named(tmp_path, run, records, message):
    path = lines(tmp_path / "raw.jsonl", *records)
    status, _, errors = run("tokenizer", "train", "--input", path, "--output", tmp_path / "made")
    assert (status, message.format(path=path) in errors) == (1, True), errors
    assert not (tmp_path / "made").exists()
