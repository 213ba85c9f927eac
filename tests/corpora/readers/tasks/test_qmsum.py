"""QMSum: meetings a line, general and specific queries."""

from __future__ import annotations

from dataclasses import replace

from corpora.readers import ReadOptions
from corpora.readers.selection import plan_ranges, read_records
from corpora.readers.task_data.declaration import RawPair
from corpora.storage import files
from tests.corpora.readers.tasks import read_documents, read_pairs, rejected_pairs, write_lines

QMSUM = ReadOptions(format="qmsum")
MEETING = {
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
TEXT = "Ann: Red {vocalsound} lamps , please .\nBob: \nAnn: {disfmarker} Red ."


def test_a_meeting_is_one_document_of_all_its_queries(tmp_path):
    path = write_lines(tmp_path / "jsonl" / "val.jsonl", [MEETING])
    documents = read_documents(path, QMSUM)
    assert list(documents.values()) == [TEXT]
    pairs = read_pairs(path, QMSUM)
    assert [pair.query for pair in pairs] == ["Summarize the whole meeting.", "What did Ann want?", "Who left?"]
    assert [pair.attributes for pair in pairs] == [
        {"kind": "general"},
        {"kind": "specific", "turns": [[0, 0], [2, 2]]},
        {"kind": "specific", "turns": []},
    ]
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
    assert list(read_documents(path, QMSUM).values()) == [TEXT]
    assert pair_texts(path) == ["They spoke of lamps.", "A red one.", "Bob."]


def test_meetings_without_turns_or_lists_are_rejected(tmp_path):
    rows = [
        {"meeting_transcripts": []},
        {**MEETING, "meeting_transcripts": [{"speaker": "Ann", "content": " "}]},
        {**MEETING, "general_query_list": 1},
        {**MEETING, "specific_query_list": None},
    ]
    path = write_lines(tmp_path / "train.jsonl", rows)
    assert [reason for _, reason in rejected_pairs(path, QMSUM)] == [
        "empty_text",
        "empty_text",
        "not_a_list",
        "null_text",
    ]


def pair_texts(path):
    options = replace(QMSUM, format="pairs:qmsum")
    (piece,) = plan_ranges(str(path), files, options, 1 << 30)
    return [RawPair.from_json(text).targets[0] for block in read_records(piece, files, options) for text in block.texts]
