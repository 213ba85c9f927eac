"""Collections of tasks, meetings, and pairs of your own."""

import datetime
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpora.readers import ReadOptions
from corpora.readers.options import PairFields
from corpora.readers.raw_tasks import text_key
from corpora.readers.tasks.suites import SUBSETS, divide_input
from tests.corpora.readers import pack
from tests.corpora.readers.tasks import read_documents, read_pairs, read_reasons, rejected_pairs, write_lines

# SCROLLS: seven data sets as JSON lines, one input for each of several references.
SCROLLS = ReadOptions(format="scrolls")
TEXT = "The ferry left at noon.\n\nNobody was on it.\n\nThe harbour is 12 m deep."
QUALITY = "Who was on the ferry?\n\n (A) A cook\n (B) No one\n (C) Two dogs (and a cat)\n (D) All of them"


def record(number: int, text: str, output: str | None, name: str = "q") -> dict:
    return {"id": f"{name}{number // 2}", "pid": f"{name}{number // 2}_{number % 2}", "input": text, "output": output}


@pytest.mark.parametrize("subset", SUBSETS)
def test_the_input_of_each_subset_is_divided_into_query_and_text(subset):
    if subset in ("gov_report", "summ_screen_fd"):
        assert divide_input(TEXT, subset) == ("", TEXT, None)
        return
    query = QUALITY if subset == "quality" else "How deep is the harbour?"
    options = ("A cook", "No one", "Two dogs (and a cat)", "All of them") if subset == "quality" else None
    blank = "\n\n\n" if subset == "quality" else "\n\n"
    assert divide_input(f"{query}{blank}{TEXT}", subset) == (query, TEXT, options)


def test_a_question_that_names_a_letter_adds_no_option():
    query = QUALITY.replace("Who was", "Take\n(A) of the plan: who was")
    _, _, options = divide_input(f"{QUALITY}\n\n{TEXT}", "quality")
    assert divide_input(f"{query}\n\n\n{TEXT}", "quality") == (query, TEXT, options)


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
    members = {"quality/validation.jsonl": lines, "quality/test.jsonl": lines.replace('"No one"', "null")}
    path = pack(tmp_path / "quality.zip", {**members, "__MACOSX/quality/._test.jsonl": "x"})
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
    rows = [good, {"id": "a"}, {**good, "id": 7}, {**good, "output": 1}, {**good, "input": "no blank line"}]
    path = write_lines(tmp_path / "qasper" / "train.jsonl", rows)
    with path.open("a") as file:
        file.write("{broken\n" + json.dumps({**good, "input": "Q?\n\n \n"}) + "\n" + json.dumps(good) + "\n")
    reasons = read_reasons(path, SCROLLS)
    assert reasons == ["missing_text", "not_a_string", "not_a_string", "no_query", "broken_json", "empty_document"]


# ZeroSCROLLS: prompts whose document lies between two places.
ZERO = ReadOptions(format="zero-scrolls")
HEAD, STORY = "You are given a story.\n\nStory:\n", "The ferry left.\n\nNobody saw it."
TAIL = "\n\nAnswer:\nWho saw it?"


def zero_record(name: str, **changed: object) -> dict:
    prompt = HEAD + STORY + TAIL
    places = {"document_start_index": len(HEAD), "document_end_index": len(HEAD + STORY)}
    places |= {"query_start_index": len(HEAD + STORY) + 2, "query_end_index": len(prompt)}
    return {"id": name, "pid": f"{name}_0", "input": prompt, "output": "Nobody.", **places, **changed}


def test_the_query_is_the_prompt_without_the_document(tmp_path):
    rows = [zero_record("a"), zero_record("b", output=None)]
    path = write_lines(tmp_path / "narrative_qa" / "validation.jsonl", rows)
    assert list(read_documents(path, ZERO).values()) == [STORY]
    first, second = read_pairs(path, ZERO)
    assert first.query == "You are given a story.\n\nStory:\n\nAnswer:\nWho saw it?"
    assert (first.split, first.targets, second.targets) == ("validation", ("Nobody.",), ())
    assert first.attributes == {"subset": "narrative_qa"}


def test_wrong_places_are_rejected(tmp_path):
    for place, value in (("document_start", 70), ("document_end", 10_000), ("query_start", 0), ("query_start", None)):
        rows = [zero_record("a", **{f"{place}_index": value}), zero_record("b")]
        path = write_lines(tmp_path / "squality" / "test.jsonl", rows)
        assert rejected_pairs(path, ZERO) == [("0", "wrong_index")], (place, value)


# LongBench: a file for each data set, records of the test alone.
LONG = {"_id": "ab1", "dataset": "trec", "language": "en", "length": 9, "context": STORY, "input": "Which kind?"}
LONG |= {"answers": ["Number", "Count"], "all_classes": ["Number", "Count", "Place"]}


def test_longbench_has_all_answers_as_references_and_classes_as_options(tmp_path):
    summary = {**LONG, "_id": "ab2", "dataset": "gov_report", "input": "", "all_classes": None}
    path = write_lines(tmp_path / "data" / "trec.jsonl", [LONG, summary])
    options = ReadOptions(format="long-bench")
    assert list(read_documents(path, options).values()) == [STORY]
    first, second = read_pairs(path, options)
    assert (first.pair_id, first.query, first.split) == ("ab1", "Which kind?", "test")
    assert first.targets == ("Number", "Count")
    assert first.options == ("Number", "Count", "Place")
    assert first.attributes == {"subset": "trec", "language": "en", "length": 9}
    assert (second.query, second.options) == ("", None)
    bad = write_lines(tmp_path / "bad.jsonl", [{**LONG, "answers": []}, {**LONG, "all_classes": [7]}])
    assert read_reasons(bad, options) == ["empty_text", "not_a_list"]


# Pairs of one's own, as JSON lines and Parquet with the same records.
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
    a, b = read_pairs(path, replace(options, pairs=replace(fields, pair_id_field=None)))
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
    assert read_reasons(path, replace(MINE, pairs=PairFields(query_field="ask"))) == ["missing_query"]


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
def test_bad_records_are_rejected_and_their_neighbours_kept_in_files_of_your_own(tmp_path, changed, reason):
    path = write_lines(tmp_path / "mine.jsonl", [{**RECORDS[0], **changed}, RECORDS[1]])
    assert rejected_pairs(path, MINE) == [("0", reason)]


# QMSum: meetings a line, general and specific queries.
QMSUM = ReadOptions(format="qmsum")
MEETING: dict[str, Any] = {
    "topic_list": [{"topic": "Lamps", "relevant_text_span": [["0", "1"]]}],
    "general_query_list": [{"query": "Summarize the whole meeting.", "answer": "They spoke of lamps."}],
    "specific_query_list": [
        {"query": "What did Ann want?", "answer": "A red one.", "relevant_text_span": [["0", "0"], ["2", "2"]]},
        {"query": "Who left?", "answer": "Bob.", "relevant_text_span": []},
    ],
    "meeting_transcripts": [
        {"speaker": "Ann", "content": "Red {vocalsound} lamps , please ."},
        {"speaker": "Bob", "content": ""},
        {"speaker": "Ann", "content": "{disfmarker} Red ."},
    ],
}
MEETING_TEXT = "Ann: Red {vocalsound} lamps , please .\nBob: \nAnn: {disfmarker} Red ."


def test_a_meeting_is_one_document_of_all_its_queries(tmp_path):
    path = write_lines(tmp_path / "jsonl" / "val.jsonl", [MEETING])
    documents = read_documents(path, QMSUM)
    assert list(documents.values()) == [MEETING_TEXT]
    pairs = read_pairs(path, QMSUM)
    assert [pair.query for pair in pairs] == ["Summarize the whole meeting.", "What did Ann want?", "Who left?"]
    specific = [{"kind": "specific", "turns": turns} for turns in ([[0, 0], [2, 2]], [])]
    assert [pair.attributes for pair in pairs] == [{"kind": "general"}, *specific]
    assert {pair.documents for pair in pairs} == {tuple(documents)}
    assert len({pair.pair_id for pair in pairs}) == 3
    assert {pair.split for pair in pairs} == {"validation"}


def test_marks_of_speech_recognition_can_be_removed(tmp_path):
    path = write_lines(tmp_path / "val.jsonl", [MEETING])
    clean = ReadOptions(format="qmsum", preprocess=("strip-speech-marks",))
    assert list(read_documents(path, clean).values()) == ["Ann: Red lamps , please .\nBob: \nAnn: Red ."]
    assert [pair.documents for pair in read_pairs(path, QMSUM)] == [tuple(read_documents(path, clean))] * 3


def test_a_bad_query_does_not_affect_its_meeting(tmp_path):
    bad = [
        {"query": "A?", "answer": " ", "relevant_text_span": []},
        {"query": "B?", "relevant_text_span": []},
        {"query": "C?", "answer": "c"},
        {"query": "D?", "answer": "d", "relevant_text_span": [["one", "2"]]},
        {"query": "E?", "answer": "e", "relevant_text_span": [["1"]]},
    ]
    row = {**MEETING, "specific_query_list": [*bad, *MEETING["specific_query_list"]]}
    path = write_lines(tmp_path / "train.jsonl", [row])
    reasons = ["empty_text", "missing_text", "missing_text", "broken_span", "broken_span"]
    assert rejected_pairs(path, QMSUM) == [("0", reason) for reason in reasons]
    assert list(read_documents(path, QMSUM).values()) == [MEETING_TEXT]
    pairs = read_pairs(path, QMSUM, rejected=5)
    assert [pair.targets[0] for pair in pairs] == ["They spoke of lamps.", "A red one.", "Bob."]


def test_meetings_without_turns_or_lists_are_rejected(tmp_path):
    rows = [
        {"meeting_transcripts": []},
        {**MEETING, "meeting_transcripts": [{"speaker": "Ann", "content": " "}]},
        {**MEETING, "general_query_list": 1},
        {**MEETING, "specific_query_list": None},
    ]
    path = write_lines(tmp_path / "train.jsonl", rows)
    assert read_reasons(path, QMSUM) == ["empty_text", "empty_text", "not_a_list", "null_text"]
