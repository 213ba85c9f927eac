"""SCROLLS: seven data sets as JSON lines, one input for each of several references."""

from __future__ import annotations

import json
import zipfile
from itertools import pairwise

import pytest

from corpora.readers import ReadOptions
from corpora.readers.task_data.declaration import text_key
from corpora.readers.tasks.scrolls import SUBSETS, divided
from tests.corpora.readers.tasks import read_documents, read_pairs, rejected_pairs, write_lines

SCROLLS = ReadOptions(format="scrolls")
TEXT = "The ferry left at noon.\n\nNobody was on it.\n\nThe harbour is 12 m deep."
QUALITY = "Who was on the ferry?\n\n (A) A cook\n (B) No one\n (C) Two dogs (and a cat)\n (D) All of them"


def record(number: int, text: str, output: str | None, name: str = "q") -> dict:
    return {"id": f"{name}{number // 2}", "pid": f"{name}{number // 2}_{number % 2}", "input": text, "output": output}


@pytest.mark.parametrize("subset", SUBSETS)
def test_the_input_of_each_subset_is_divided_into_query_and_text(subset):
    plain = subset in ("gov_report", "summ_screen_fd")
    if plain:
        assert divided(TEXT, subset) == ("", TEXT, None)
        return
    query = QUALITY if subset == "quality" else "How deep is the harbour?"
    options = ("A cook", "No one", "Two dogs (and a cat)", "All of them") if subset == "quality" else None
    blank = "\n\n\n" if subset == "quality" else "\n\n"
    assert divided(f"{query}{blank}{TEXT}", subset) == (query, TEXT, options)


def test_a_question_that_names_a_letter_adds_no_option():
    query = QUALITY.replace("Who was", "Take\n(A) of the plan: who was")
    assert divided(f"{query}\n\n\n{TEXT}", "quality") == (query, TEXT, divided(f"{QUALITY}\n\n{TEXT}", "quality")[2])


def test_a_document_is_kept_once_and_each_answer_makes_a_pair_of_the_same_id(tmp_path):
    rows = [record(n, f"Question {n // 2}?\n\n{TEXT if n < 6 else TEXT[:23]}", f"Answer {n}.") for n in range(8)]
    path = write_lines(tmp_path / "qasper" / "train.jsonl", rows)
    expected = {text_key(TEXT): TEXT, text_key(TEXT[:23]): TEXT[:23]}
    assert read_documents(path, SCROLLS) == read_documents(path, SCROLLS, 200) == expected
    pairs = read_pairs(path, SCROLLS)
    assert pairs == read_pairs(path, SCROLLS, 200)
    assert [pair.pair_id for pair in pairs] == [row["id"] for row in rows]
    assert [pair.targets for pair in pairs] == [(row["output"],) for row in rows]
    assert {pair.split for pair in pairs} == {"train"}
    assert pairs[0].query == "Question 0?"
    assert pairs[0].references is None
    assert pairs[0].attributes == {"subset": "qasper"}
    assert all(a.documents == b.documents for a, b in pairwise(pairs[:6]))
    assert pairs[6].documents == (text_key(TEXT[:23]),)


def test_a_zip_reads_like_its_folder_and_names_the_subset(tmp_path):
    rows = [record(n, f"{QUALITY}\n\n\n{TEXT} {n}", "No one") for n in range(4)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path = tmp_path / "quality.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("quality/validation.jsonl", lines)
        archive.writestr("quality/test.jsonl", lines.replace('"No one"', "null"))
        archive.writestr("__MACOSX/quality/._test.jsonl", "x")
    plain = write_lines(tmp_path / "quality" / "validation.jsonl", rows)
    pairs = read_pairs(path, SCROLLS)
    assert pairs[:4] == read_pairs(plain, SCROLLS)
    assert [pair.split for pair in pairs] == ["validation"] * 4 + ["test"] * 4
    assert all(pair.targets == () for pair in pairs[4:])
    assert read_documents(path, SCROLLS) == read_documents(plain, SCROLLS)


def test_the_subset_comes_from_the_option_or_a_folder(tmp_path):
    path = write_lines(tmp_path / "mine" / "test.jsonl", [record(0, f"Q?\n\n{TEXT}", None)])
    assert rejected_pairs(path, SCROLLS) == [("0", "unknown_subset")]
    assert rejected_pairs(path, ReadOptions(format="scrolls", subset="qaspr")) == [("0", "unknown_subset")]
    assert read_pairs(path, ReadOptions(format="scrolls", subset="qasper"))[0].query == "Q?"
    assert read_pairs(path, ReadOptions(format="scrolls", subset="gov_report"))[0].query == ""


def test_bad_records_are_rejected_and_their_neighbours_kept(tmp_path):
    good = record(0, f"Q?\n\n{TEXT}", "12 m")
    path = write_lines(
        tmp_path / "qasper" / "train.jsonl", [good, {"id": "a"}, {**good, "id": 7}, {**good, "output": 1}]
    )
    with path.open("a") as file:
        file.write(json.dumps({**good, "input": "no blank line"}) + "\n{broken\n")
        file.write(json.dumps({**good, "input": "Q?\n\n \n"}) + "\n" + json.dumps(good) + "\n")
    reasons = [reason for _, reason in rejected_pairs(path, SCROLLS)]
    assert reasons == ["missing_text", "not_a_string", "not_a_string", "no_query", "broken_json", "empty_document"]
