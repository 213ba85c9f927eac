"""TriviaQA: questions in one object, Wikipedia pages in files beside it."""

from __future__ import annotations

import json

import pytest

from corpora.readers import ReadOptions
from corpora.readers.selection import holds_records
from tests.corpora.readers.tasks import read_documents, read_pairs, rejected_pairs

TRIVIA = ReadOptions(format="trivia-qa")
ANSWER = {"Value": "Lamp", "Aliases": ["Lamps", "Lamp", "The lamp"], "NormalizedValue": "lamp"}


def page(name, **fields):
    return {"DocSource": "TagMe", "Filename": f"{name}.txt", "Title": name.replace("_", " "), **fields}


def question(name, *pages, **fields):
    plain = {"Question": f"What is {name}?", "QuestionId": name, "Answer": ANSWER, "EntityPages": list(pages)}
    return {**plain, "SearchResults": [{"Filename": "1/1_1.txt"}], **fields}


@pytest.fixture
def write(tmp_path):
    pages = tmp_path / "evidence" / "wikipedia"
    pages.mkdir(parents=True)
    (pages / "Oil_lamp.txt").write_text("Oil burns.\n")
    (pages / "Moth.txt").write_text("Moths fly to lamps.")
    (pages / "Blank.txt").write_text(" \n")
    (pages / "Latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "qa").mkdir()

    def write(name, *questions):
        path = tmp_path / "qa" / name
        path.write_text(json.dumps({"Data": questions, "Domain": "Wikipedia", "VerifiedEval": "verified" in name}))
        return path

    return write


def test_pages_are_documents_with_their_titles(write):
    path = write(
        "wikipedia-train.json", question("tc_1", page("Moth"), page("Oil_lamp")), question("tc_2", page("Moth"))
    )
    assert read_documents(path, TRIVIA) == {"Moth": "Moth\nMoths fly to lamps.", "Oil_lamp": "Oil lamp\nOil burns."}
    first, second = read_pairs(path, TRIVIA)
    assert (first.pair_id, first.query, first.split) == ("tc_1", "What is tc_1?", "train")
    assert (first.documents, second.documents) == (("Moth", "Oil_lamp"), ("Moth",))
    assert first.targets == ("Lamp",)
    assert first.references == ("Lamp", "Lamps", "The lamp")


def test_withheld_answers_are_none(write):
    hidden = question("tc_1", page("Moth"))
    del hidden["Answer"]
    (pair,) = read_pairs(write("wikipedia-test-without-answers.json", hidden), TRIVIA)
    assert (pair.targets, pair.references, pair.split) == ((), (), "test")


def test_verified_files_are_read_by_what_people_verified(write):
    good = question(
        "a",
        page("Moth", DocPartOfVerifiedEval=True),
        page("Oil_lamp", DocPartOfVerifiedEval=False),
        QuestionPartOfVerifiedEval=True,
    )
    bad = question("b", page("Moth", DocPartOfVerifiedEval=True), QuestionPartOfVerifiedEval=False)
    (pair,) = read_pairs(write("verified-wikipedia-dev.json", good, bad), TRIVIA)
    assert (pair.pair_id, pair.documents, pair.split) == ("a", ("Moth",), "validation")
    assert len(read_pairs(write("wikipedia-dev.json", good, bad), TRIVIA)) == 2


def test_a_folder_is_read_by_its_wikipedia_files():
    names = ("wikipedia-dev.json", "web-dev.json", "verified-wikipedia-dev.json", "Moth.txt")
    assert [name for name in names if holds_records(f"qa/{name}", TRIVIA)] == ["wikipedia-dev.json"]


def test_missing_pages_and_bad_questions_are_rejected_alone(write):
    path = write(
        "wikipedia-train.json",
        question("a", page("Gone"), page("Moth")),
        question("b", page("Gone")),
        question("c"),
        question("d", page("../qa/wikipedia-train")),
        question("e", page("Blank")),
        question("f", page("Latin")),
        question("g", page("Moth"), Answer={"Aliases": ["x"]}),
        question("h", page("Moth"), Question=""),
    )
    reasons = ["missing_file", "missing_file", "empty_text", "unsafe_name", "empty_text", "invalid_utf8"]
    assert rejected_pairs(path, TRIVIA) == [
        (str(number), reason) for number, reason in enumerate([*reasons, "missing_text", "empty_text"])
    ]


@pytest.mark.parametrize(
    "text",
    ['{"Version": 1.0, "Domain": "a \\" b", "Data": [DATA]}', '\ufeff{\n "Data" :[\nDATA\n], "Domain": {"x": [1]}}'],
)
def test_fields_around_the_questions_do_not_matter(write, text):
    path = write("wikipedia-dev.json")
    questions = ", ".join(json.dumps(question(f"q{number}", page("Moth"))) for number in range(3))
    path.write_text(text.replace("DATA", questions))
    assert [pair.pair_id for pair in read_pairs(path, TRIVIA)] == ["q0", "q1", "q2"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"Question": []}', "unreadable_file"),
        ('{"x": {"Data": [1]}}', "unreadable_file"),
        ("", "unreadable_file"),
        ('{"Data": [{"Question": "cut', "truncated_file"),
        ('{"Data": [3]}', "not_an_object"),
    ],
)
def test_other_files_are_rejected(write, text, reason):
    path = write("wikipedia-dev.json")
    path.write_text(text)
    assert rejected_pairs(path, TRIVIA) == [("0", reason)]
