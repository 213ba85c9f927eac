"""Questions about paragraphs, contracts, papers and stories."""

import zipfile

import pytest

from corpora.readers import ReadOptions
from corpora.readers.raw_tasks import RawRecord, text_key
from corpora.readers.records import BadRecord
from corpora.readers.selection import holds_records
from corpora.readers.tasks.questions import qasper_answer
from corpora.readers.tasks.suites import divide_input
from tests.corpora.readers.tasks import (
    read_documents,
    read_pairs,
    read_reasons,
    rejected_pairs,
    write_json,
    write_lines,
)

# HotpotQA: one array of questions, ten paragraphs each.
HOTPOT = ReadOptions(format="hotpot-qa")
LAMP = ["Lamp", ["A lamp glows.", " It is hot."]]
MOTH = ["Moth", ["Moths fly."]]
QUESTION = {
    "_id": "5a",
    "question": "What flies to what is hot?",
    "answer": "moths",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Moth", 0], ["Lamp", 1]],
    "context": [["Stone", ["Stones lie."]], LAMP, MOTH],
}


def test_paragraphs_are_documents_shared_by_questions(tmp_path):
    other = {**QUESTION, "_id": "5b", "context": [MOTH, LAMP], "supporting_facts": [["Moth", 0]]}
    path = write_json(tmp_path / "hotpot_dev_distractor_v1.json", [QUESTION, other])
    documents = read_documents(path, HOTPOT)
    assert list(documents.values()) == ["Stone\nStones lie.", "Lamp\nA lamp glows. It is hot.", "Moth\nMoths fly."]
    assert [key.partition("#")[0] for key in documents] == ["Stone", "Lamp", "Moth"]
    first, second = read_pairs(path, HOTPOT)
    assert first.documents == tuple(documents)
    assert second.documents == tuple(reversed(first.documents[1:]))
    assert (first.query, first.targets, first.split) == (QUESTION["question"], ("moths",), "validation")
    assert first.attributes == {"type": "bridge", "level": "hard", "supporting": [1, 2]}
    assert second.attributes["supporting"] == [0]


def test_two_versions_of_a_paragraph_are_two_documents(tmp_path):
    changed = {**QUESTION, "_id": "5c", "context": [["Lamp", ["A lamp is cold."]]]}
    path = write_json(tmp_path / "hotpot_train_v1.1.json", [QUESTION, changed])
    assert len(read_documents(path, HOTPOT)) == 4


def test_test_questions_have_no_targets(tmp_path):
    hidden = {name: QUESTION[name] for name in ("_id", "question", "context")}
    (pair,) = read_pairs(write_json(tmp_path / "hotpot_test_fullwiki_v1.json", [hidden]), HOTPOT)
    assert (pair.targets, pair.attributes, pair.split) == ((), {"supporting": []}, "test")


def test_bad_questions_are_rejected(tmp_path):
    contexts = ([], [["Lamp"]], [["Lamp", "glows"]], [["Lamp", [1]]])
    nameless = {name: value for name, value in QUESTION.items() if name != "_id"}
    bad = [*({**QUESTION, "context": context} for context in contexts), {**QUESTION, "answer": ""}]
    bad += [{**QUESTION, "question": None}, nameless]
    reasons = read_reasons(write_json(tmp_path / "hotpot_train_v1.1.json", bad), HOTPOT)
    assert reasons[:4] == ["empty_text", "broken_paragraph", "broken_paragraph", "broken_paragraph"]
    assert reasons[4:] == ["empty_text", "null_text", "missing_text"]


# WikiHop: one array of queries with supports and candidates.
HOP = ReadOptions(format="wiki-hop")
QUERY = {
    "id": "WH_train_0",
    "query": "located_in lamp museum",
    "answer": "tin town",
    "candidates": ["coal city", "tin town"],
    "supports": ["The lamp museum is in Tin Town.", "Coal City is big."],
}


def test_supports_are_documents_shared_by_queries(tmp_path):
    other = {**QUERY, "id": "WH_train_1", "supports": QUERY["supports"][:1]}
    path = write_json(tmp_path / "train.json", [QUERY, other])
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
    fields = ({"supports": []}, {"answer": "moon"}, {"candidates": None}, {"query": " "})
    bad = [*({**QUERY, **changed} for changed in fields), {"id": 1}, {**QUERY, "id": True}, 3]
    reasons = read_reasons(write_json(tmp_path / "dev.json", bad), HOP)
    assert reasons[:5] == ["empty_text", "unknown_label", "null_text", "empty_text", "missing_text"]
    assert reasons[5:] == ["missing_id", "not_an_object"]


# ContractNLI: contracts and hypotheses in one object.
NLI = ReadOptions(format="contract-nli")
LABELS = {
    "nda-1": {"short_description": "Secret", "hypothesis": "The paint is secret."},
    "nda-2": {"short_description": "Survival", "hypothesis": "Terms survive."},
}


def contract(name, **fields):
    annotations = {"nda-1": {"choice": "Entailment", "spans": [1]}, "nda-2": {"choice": "NotMentioned", "spans": []}}
    text = "The parties agree. The paint is secret."
    plain = {"id": name, "file_name": "a.pdf", "text": text, "spans": [[0, 18], [19, 39]]}
    return {**plain, "annotation_sets": [{"annotations": annotations}], **fields}


def test_a_contract_is_one_document_of_all_hypotheses(tmp_path):
    path = write_json(tmp_path / "dev.json", {"documents": [contract(34), contract(35)], "labels": LABELS})
    assert list(read_documents(path, NLI)) == ["34", "35"]
    pairs = read_pairs(path, NLI)
    assert [pair.pair_id for pair in pairs] == ["34_nda-1", "34_nda-2", "35_nda-1", "35_nda-2"]
    first, second = pairs[:2]
    assert (first.query, first.targets, first.split) == ("The paint is secret.", ("Entailment",), "validation")
    assert second.targets == ("Not mentioned",)
    assert first.options == ("Entailment", "Contradiction", "Not mentioned")
    assert first.attributes == {"hypothesis": "nda-1", "evidence": [[19, 39]]}


def test_bad_contracts_and_annotations_are_rejected_alone(tmp_path):
    odd = {"nda-1": {"choice": "Perhaps", "spans": []}, "nda-9": {"choice": "Entailment", "spans": []}}
    fields: list[dict] = [{"annotation_sets": []}, {"annotation_sets": [{"annotations": odd}]}]
    fields += [{"text": " "}, {"id": None}, {"spans": "none"}]
    contracts = [contract(number, **changed) for number, changed in enumerate(fields, 1)]
    path = write_json(tmp_path / "train.json", {"documents": contracts, "labels": LABELS})
    assert rejected_pairs(path, NLI) == [
        ("0", "annotation_sets"),
        ("1", "unknown_label"),
        ("1", "missing_text"),
        ("2", "empty_text"),
        ("3", "null_text"),
        ("4", "not_a_list"),
    ]
    for text, reason in (("[]", "not_an_object"), ('{"documents": []}', "missing_text")):
        path.write_text(text)
        assert rejected_pairs(path, NLI) == [("0", reason)]


# Qasper: papers by id, several annotators, four kinds of answers.
QASPER = ReadOptions(format="qasper")


def answer(**fields):
    plain = {"unanswerable": False, "extractive_spans": [], "yes_no": None, "free_form_answer": ""}
    return {"answer": {**plain, **fields}, "annotation_id": "a", "worker_id": "w"}


def question(name, *answers):
    return {"question": f"What of {name}?", "question_id": name, "answers": list(answers)}


PAPER = {
    "title": "On lamps",
    "abstract": "We like lamps.",
    "full_text": [
        {"section_name": "Introduction", "paragraphs": ["Lamps\nglow.", ""]},
        {"section_name": None, "paragraphs": ["The end."]},
    ],
    "qas": [
        question("q1", answer(free_form_answer="They glow"), answer(extractive_spans=["glow", "shine"])),
        question("q2", answer(yes_no=False), answer(unanswerable=True)),
    ],
}


def test_all_annotators_answers_are_references_of_one_pair(tmp_path):
    path = write_json(tmp_path / "qasper-dev-v0.3.json", {"1234.5678": PAPER})
    assert read_documents(path, QASPER) == {"1234.5678": "Introduction\nLamps glow.\nThe end."}
    first, second = read_pairs(path, QASPER)
    assert (first.pair_id, first.query, first.split) == ("q1", "What of q1?", "validation")
    assert first.targets == ("They glow", "glow, shine")
    assert first.attributes == {"kinds": ["abstractive", "extractive"]}
    assert second.targets == ("No", "Unanswerable")
    assert second.documents == ("1234.5678",)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"unanswerable": True, "free_form_answer": "x"}, ("Unanswerable", "none")),
        ({"extractive_spans": ["a"], "yes_no": True}, ("a", "extractive")),
        ({"free_form_answer": "Maybe", "yes_no": True}, ("Maybe", "abstractive")),
        ({"yes_no": True}, ("Yes", "boolean")),
    ],
)
def test_kinds_of_answers_count_in_the_order_of_the_evaluator(fields, expected):
    assert qasper_answer(RawRecord(answer(**fields)["answer"])) == expected
    with pytest.raises(BadRecord, match="neither unanswerable"):
        qasper_answer(RawRecord(answer()["answer"]))


def test_bad_papers_and_questions_are_rejected_alone(tmp_path):
    papers = {
        "1": {**PAPER, "full_text": []},
        "2": {**PAPER, "qas": [question("q3", answer()), question("q4", answer(yes_no=True)), {"question": "Q?"}]},
        "3": {"title": "no text"},
        "4": [],
    }
    path = write_json(tmp_path / "qasper-train-v0.3.json", papers)
    assert rejected_pairs(path, QASPER) == [
        ("1", "empty_text"),
        ("2", "no_answer"),
        ("2", "missing_text"),
        ("3", "missing_text"),
        ("4", "not_an_object"),
    ]
    path.write_text('{"1": ')
    assert rejected_pairs(path, QASPER) == [("0", "broken_json")]


# QuALITY: an article and the questions of one writer a line.
QUALITY = ReadOptions(format="quality")
OPTIONS = ["A cook", "No one", "Two dogs", "All of them"]


def choice(number, **fields):
    return {
        "question": f"Who was first on ferry {number}?",
        "question_unique_id": f"10_W_{number}",
        "options": OPTIONS,
        "gold_label": 2,
        "writer_label": 1,
        "difficult": number % 2,
        **fields,
    }


def line(writer, *questions):
    return {
        "article_id": "10",
        "set_unique_id": f"10_{writer}",
        "title": "The ferry",
        "article": "The ferry left.\n\nNobody was on it.",
        "questions": list(questions),
    }


def test_two_writers_share_an_article_and_options_stand_in_the_query(tmp_path):
    path = tmp_path / "QuALITY.v1.0.1.htmlstripped.dev"
    write_lines(path, [line("W", choice(1), choice(2)), line("V", choice(3, question_unique_id=None))])
    assert read_documents(path, QUALITY) == {"10": "The ferry left.\n\nNobody was on it."}
    first, second, third = read_pairs(path, QUALITY)
    assert first.query == "Who was first on ferry 1?\n\n (A) A cook\n (B) No one\n (C) Two dogs\n (D) All of them"
    assert (first.targets, first.options, first.split) == (("No one",), tuple(OPTIONS), "validation")
    assert [pair.attributes["hard"] for pair in (first, second, third)] == [True, False, True]
    assert [pair.pair_id for pair in (first, second, third)] == ["10_W_1", "10_W_2", "10_V_1"]
    assert {pair.documents for pair in (first, second, third)} == {("10",)}


def test_the_test_file_has_no_targets(tmp_path):
    hidden = {name: value for name, value in choice(1).items() if name not in ("gold_label", "difficult")}
    path = write_lines(tmp_path / "QuALITY.v1.0.1.htmlstripped.test", [line("W", hidden)])
    (pair,) = read_pairs(path, QUALITY)
    assert (pair.targets, pair.attributes, pair.split) == ((), {}, "test")


def test_files_of_web_pages_are_refused_with_the_name_to_give(tmp_path):
    path = write_lines(tmp_path / "QuALITY.v1.0.1.dev", [line("W", choice(1))])
    assert rejected_pairs(path, QUALITY) == [("0", "html_text")]
    stripped = write_lines(tmp_path / "QuALITY.v1.0.1.htmlstripped.dev", [line("W", choice(1))])
    archive = tmp_path / "QuALITY.v1.0.1.zip"
    with zipfile.ZipFile(archive, "w") as both:
        both.write(path, path.name)
        both.write(stripped, stripped.name)
    assert read_pairs(archive, QUALITY) == read_pairs(stripped, QUALITY)


def test_bad_questions_are_rejected_alone(tmp_path):
    fields: list[dict] = [{"gold_label": 5}, {"gold_label": "2"}, {"options": []}, {"options": ["x"] * 9}, {}]
    questions = [choice(number, **changed) for number, changed in enumerate(fields, 1)]
    rows = [line("W", *questions), {**line("V"), "article": ""}, {**line("V"), "article_id": None}, {"questions": []}]
    reasons = read_reasons(write_lines(tmp_path / "QuALITY.v1.0.1.htmlstripped.train", rows), QUALITY)
    assert reasons[:4] == ["unknown_label", "unknown_label", "empty_text", "too_many_options"]
    assert reasons[4:] == ["empty_text", "null_text", "missing_text"]


def test_the_query_is_the_one_that_scrolls_has(tmp_path):
    path = write_lines(tmp_path / "QuALITY.v1.0.1.htmlstripped.train", [line("W", choice(1))])
    (pair,) = read_pairs(path, QUALITY)
    text = read_documents(path, QUALITY)["10"]
    assert divide_input(f"{pair.query}\n\n\n{text}", "quality") == (pair.query, text, pair.options)
