"""Questions about stories and pages, and summaries of news, in files beside their index."""

import csv
import gzip
import json
from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.selection import holds_records
from corpora.readers.tasks import stories
from corpora.readers.tasks.stories import story_text
from tests.corpora.readers import read_all
from tests.corpora.readers.tasks import read_documents, read_pairs, read_reasons, rejected_pairs, write_lines

# NarrativeQA: tables of stories and questions, and a file for each story.
STORIES = ReadOptions(format="narrative-qa")
BOOK = (
    "The Project Gutenberg EBook of A Tale\r\n\r\n*** START OF THIS PROJECT GUTENBERG EBOOK A TALE ***\r\n\r\n"
    "Tom's café.\r\n\r\n*** END OF THIS PROJECT GUTENBERG EBOOK A TALE ***\r\nnew eBooks."
)
SCRIPT = "<html><head><title>Menu</title></head><body>Films<pre><b>INT. HALL</b>\n  TOM\n Who is there?</pre></body>"


@pytest.fixture
def write(tmp_path):
    (tmp_path / "tmp").mkdir()

    def write(stories, questions, columns=("document_id", "set", "question", "answer1", "answer2")):
        with (tmp_path / "documents.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["document_id", "set", "kind", "story_url", "story_file_size", "wiki_title"])
            for name, split, data in stories:
                table.writerow([name, split, "gutenberg", "http://x", "9", f"Tale, {name}"])
                if data is not None:
                    (tmp_path / "tmp" / f"{name}.content").write_bytes(data)
        with (tmp_path / "qaps.csv").open("w", newline="") as file:
            csv.writer(file).writerows([columns, *questions])
        return tmp_path / "documents.csv"

    return write


def test_a_story_is_read_once_for_all_its_questions(write, monkeypatch):
    read = []
    monkeypatch.setattr(stories, "story_text", lambda data: read.append(data) or story_text(data))
    questions = [("a1", "test", f"Who, {n}?", f" Tom {n} ", f"He {n}") for n in range(40)]
    questions.insert(7, ("b2", "train", "Where?", "In a hall", ""))
    path = write([("a1", "test", BOOK.encode()), ("b2", "valid", SCRIPT.encode())], questions)
    assert read_documents(path, STORIES) == {"a1": "Tom's café.", "b2": "INT. HALL\n  TOM\n Who is there?"}
    assert len(read) == 2
    pairs = read_pairs(path, STORIES)
    assert [pair.documents for pair in pairs] == [("a1",)] * 40 + [("b2",)]
    assert len({pair.pair_id for pair in pairs}) == 41
    first, last = pairs[0], pairs[-1]
    assert (first.query, first.targets, first.split) == ("Who, 0?", ("Tom 0", "He 0"), "test")
    assert first.attributes == {"kind": "gutenberg", "title": "Tale, a1"}
    assert (last.targets, last.split) == (("In a hall",), "valid")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (BOOK.encode("latin-1"), "Tom's café."),
        (b"\xef\xbb\xbf" + BOOK.encode(), "Tom's café."),
        ("“Tom”".encode("cp1252"), "“Tom”"),
        (b"Tom\x81\xe9", "Tom\x81é"),
        (f"<html><body><pre>{BOOK}</pre></body></html>".encode(), "Tom's café."),
    ],
)
def test_stories_come_in_several_encodings(data, expected):
    assert " ".join(story_text(data).split()) == expected


def test_missing_stories_and_bad_questions_are_rejected_alone(write):
    cases = {
        "a1": (None, "missing_file"),
        "b2": (b"\x1f\x8b\x08", "compressed_file"),
        "c3": (b"<html><body></body></html>", "empty_text"),
        "../d4": (None, "unsafe_name"),
    }
    stories = [*((name, "train", data) for name, (data, _) in cases.items()), ("e5", "train", b"Text.")]
    questions = [("e5", "train", "Who?", "", " "), ("e5", "train", "", "x", "y"), ("e5", "train", "What?", "x", "")]
    expected = [(name, reason) for name, (_, reason) in cases.items()]
    found = rejected_pairs(write(stories, questions), STORIES)
    assert found == [*expected, ("e5", "no_answer"), ("e5", "empty_text")]


def test_tables_without_their_columns_are_rejected(write, tmp_path):
    path = write([("a1", "train", b"Text.")], [], columns=("document_id", "answer1"))
    assert rejected_pairs(path, STORIES) == [("0", "missing_text")]
    (tmp_path / "qaps.csv").unlink()
    assert rejected_pairs(path, STORIES) == [("0", "missing_file")]
    (tmp_path / "qaps.csv").write_bytes(b"document_id,question,answer1\n\xff")
    assert rejected_pairs(path, STORIES) == [("0", "invalid_utf8")]


def test_summaries_take_the_place_of_stories(write, tmp_path):
    questions = [("a1", "test", f"Who, {n}?", "Tom", "He") for n in range(3)]
    stories = read_pairs(write([("a1", "test", b"Long.")], questions), STORIES)
    path = tmp_path / "third_party" / "wikipedia" / "summaries.csv"
    path.parent.mkdir(parents=True)
    path.write_text('document_id,set,summary,summary_tokenized\na1,test," Tom, in short.\n",tom\nb2,train, ,x\n')
    summaries = ReadOptions(format="narrative-qa-summaries")
    assert rejected_pairs(path, summaries) == [("b2", "empty_text")]
    path.write_text(path.read_text().partition("b2")[0])
    assert read_documents(path, summaries) == {"a1": "Tom, in short."}
    assert [replace(pair, attributes={}) for pair in stories] == read_pairs(path, summaries)
    (tmp_path / "qaps.csv").rename(path.parent / "qaps.csv")
    assert len(read_pairs(path, summaries)) == 3
    (path.parent / "qaps.csv").unlink()
    assert rejected_pairs(path, summaries) == [("0", "missing_file")]


# TriviaQA: questions in one object, Wikipedia pages in files beside it.
TRIVIA = ReadOptions(format="trivia-qa")
ANSWER = {"Value": "Lamp", "Aliases": ["Lamps", "Lamp", "The lamp"], "NormalizedValue": "lamp"}


def page(name, **fields):
    return {"DocSource": "TagMe", "Filename": f"{name}.txt", "Title": name.replace("_", " "), **fields}


def question(name, *pages, **fields):
    plain = {"Question": f"What is {name}?", "QuestionId": name, "Answer": ANSWER, "EntityPages": list(pages)}
    return {**plain, "SearchResults": [{"Filename": "1/1_1.txt"}], **fields}


@pytest.fixture
def write_trivia_qa(tmp_path):
    pages = tmp_path / "evidence" / "wikipedia"
    pages.mkdir(parents=True)
    (pages / "Oil_lamp.txt").write_text("\ufeffOil burns.\n")
    (pages / "Moth.txt").write_text("Moths fly to lamps.")
    (pages / "Blank.txt").write_text(" \n")
    (pages / "Latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "qa").mkdir()

    def write_trivia_qa(name, *questions):
        path = tmp_path / "qa" / name
        path.write_text(json.dumps({"Data": questions, "Domain": "Wikipedia", "VerifiedEval": "verified" in name}))
        return path

    return write_trivia_qa


def test_pages_are_documents_with_their_titles(write_trivia_qa):
    questions = question("tc_1", page("Moth"), page("Oil_lamp")), question("tc_2", page("Moth"))
    path = write_trivia_qa("wikipedia-train.json", *questions)
    assert read_documents(path, TRIVIA) == {"Moth": "Moth\nMoths fly to lamps.", "Oil_lamp": "Oil lamp\nOil burns."}
    first, second = read_pairs(path, TRIVIA)
    assert (first.pair_id, first.query, first.split) == ("tc_1", "What is tc_1?", "train")
    assert (first.documents, second.documents) == (("Moth", "Oil_lamp"), ("Moth",))
    assert first.targets == ("Lamp",)
    assert first.references == ("Lamp", "Lamps", "The lamp")


def test_withheld_answers_are_none(write_trivia_qa):
    hidden = question("tc_1", page("Moth"))
    del hidden["Answer"]
    (pair,) = read_pairs(write_trivia_qa("wikipedia-test-without-answers.json", hidden), TRIVIA)
    assert (pair.targets, pair.references, pair.split) == ((), (), "test")


def test_verified_files_are_read_by_what_people_verified(write_trivia_qa):
    pages = page("Moth", DocPartOfVerifiedEval=True), page("Oil_lamp", DocPartOfVerifiedEval=False)
    good = question("a", *pages, QuestionPartOfVerifiedEval=True)
    bad = question("b", page("Moth", DocPartOfVerifiedEval=True), QuestionPartOfVerifiedEval=False)
    (pair,) = read_pairs(write_trivia_qa("verified-wikipedia-dev.json", good, bad), TRIVIA)
    assert (pair.pair_id, pair.documents, pair.split) == ("a", ("Moth",), "validation")
    assert len(read_pairs(write_trivia_qa("wikipedia-dev.json", good, bad), TRIVIA)) == 2


def test_a_folder_is_read_by_its_wikipedia_files():
    names = ("wikipedia-dev.json", "web-dev.json", "verified-wikipedia-dev.json", "Moth.txt")
    assert [name for name in names if holds_records(f"qa/{name}", TRIVIA)] == ["wikipedia-dev.json"]


def test_missing_pages_and_bad_questions_are_rejected_alone(write_trivia_qa):
    path = write_trivia_qa(
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
    reasons += ["missing_text", "empty_text"]
    assert rejected_pairs(path, TRIVIA) == [(str(number), reason) for number, reason in enumerate(reasons)]


@pytest.mark.parametrize(
    "text",
    ['{"Version": 1.0, "Domain": "a \\" b", "Data": [DATA]}', '\ufeff{\n "Data" :[\nDATA\n], "Domain": {"x": [1]}}'],
)
def test_fields_around_the_questions_do_not_matter(write_trivia_qa, text):
    path = write_trivia_qa("wikipedia-dev.json")
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
def test_other_files_are_rejected(write_trivia_qa, text, reason):
    path = write_trivia_qa("wikipedia-dev.json")
    path.write_text(text)
    assert rejected_pairs(path, TRIVIA) == [("0", reason)]


# Multi-News: clusters and summaries in two files of lines, or in one of JSON lines.
NEWS = ReadOptions(format="multi-news")
CLUSTERS = ["One. NEWLINE_CHAR More.|||||Two.|||||", "", "Three. ||||| |||||Four.", "Five."]
SUMMARIES = ["– All of it. NEWLINE_CHAR Yes.", "nothing", "– Some.", "– Five."]


@pytest.fixture
def source(tmp_path):
    (tmp_path / "train.tgt").write_text("".join(f"{line}\n" for line in SUMMARIES))
    path = tmp_path / "train.src"
    path.write_text("".join(f"{line}\n" for line in CLUSTERS))
    return path


@pytest.mark.parametrize("cut", [1 << 30, 40, 13])
def test_summaries_are_the_lines_of_equal_number_in_any_ranges(source, cut):
    pairs = read_pairs(source, NEWS, cut)
    assert [pair.targets for pair in pairs] == [("– All of it.\nYes.",), ("– Some.",), ("– Five.",)]
    assert {pair.split for pair in pairs} == {"train"}
    assert len({pair.pair_id for pair in pairs}) == 3


def test_documents_are_those_of_the_format_for_documents(source):
    documents = read_all(source, NEWS)
    texts = dict(zip(documents.keys, documents.texts, strict=True))
    named = [[texts[key] for key in pair.documents] for pair in read_pairs(source, NEWS)]
    assert named == [["One.\nMore.", "Two."], ["Three.", "Four."], ["Five."]]


def test_other_names_and_compression(source, tmp_path):
    pairs = read_pairs(source, NEWS)
    for src, tgt in (("train.src.cleaned", "train.tgt"), ("train.txt.src", "train.txt.tgt")):
        (tmp_path / src).write_bytes(source.read_bytes())
        (tmp_path / tgt).write_bytes((tmp_path / "train.tgt").read_bytes())
        assert read_pairs(tmp_path / src, NEWS) == pairs
    for name in ("train.src", "train.tgt"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    assert read_pairs(tmp_path / "train.src.gz", NEWS) == pairs
    names = ("train.src", "train.src.cleaned", "train.txt.src", "train.jsonl", "train.tgt", "train.txt.tgt")
    pairs_of = ReadOptions(format="pairs:multi-news")
    assert [name for name in names if holds_records(name, pairs_of)] == list(names[:4])


def test_json_lines(tmp_path):
    rows = [{"document": c, "summary": s} for c, s in zip(CLUSTERS, SUMMARIES, strict=True) if c]
    path = write_lines(tmp_path / "validation.jsonl", rows)
    pairs = read_pairs(path, NEWS)
    assert [pair.targets[0] for pair in pairs] == ["– All of it.\nYes.", "– Some.", "– Five."]
    block = read_all(path, NEWS)
    texts = dict(zip(block.keys, block.texts, strict=True))
    assert [texts[key] for key in pairs[1].documents] == ["Three.", "Four."]
    bad = [{"document": "A"}, {"document": "||||| |||||", "summary": "a"}, {"document": "A", "summary": " "}]
    write_lines(path, bad)
    assert read_reasons(path, NEWS) == ["missing_text", "empty_cluster", "empty_text"]


def test_fewer_summaries_and_missing_files(source, tmp_path):
    (tmp_path / "train.tgt").write_text("– All.\n\n\n")
    assert rejected_pairs(source, NEWS) == [("39", "empty_text"), ("63", "missing_text")]
    (tmp_path / "train.tgt").unlink()
    with pytest.raises(FarspanError, match=r"train\.src: no summaries beside it; put train\.tgt there"):
        read_pairs(source, NEWS)
    with pytest.raises(FarspanError, match=r"train\.txt: not a file of Multi-News"):
        read_pairs(source.rename(tmp_path / "train.txt"), NEWS)
