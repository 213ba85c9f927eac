"""Summaries of papers, reports, episodes, meetings and chapters."""

import json

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.selection import holds_records, plan_ranges
from tests.corpora.readers import pack, read_all
from tests.corpora.readers.tasks import read_documents, read_pairs, read_reasons, rejected_pairs, write_lines

# GovReport: nested sections by id, splits in lists of ids, and lines as on the hub.
GOV = ReadOptions(format="gov-report")


def section(title, *paragraphs, inside=()):
    return {"section_title": title, "paragraphs": list(paragraphs), "subsections": list(inside)}


GAO = {
    "id": "GAO-1",
    "title": "Bridges",
    "report": [section("Letter", "Dear chairman.", inside=[section("Age", "Old.", " ")]), section(None, "Sincerely.")],
    "highlight": [
        section("Why GAO Did This Study", "Bridges age."),
        section("What GAO Found", "Most are sound.", inside=[section("Costs", "They rise.")]),
        section("What GAO Recommends ", "Paint them."),
    ],
}
CRS = {"id": "R1", "title": "Rivers", "reports": section("", "They flow."), "summary": ["Rivers flow.", "Often."]}


@pytest.fixture
def folder(tmp_path):
    for name, reports in (("gao", {"GAO-1": GAO}), ("crs", {"R1": CRS, "R2": {**CRS, "summary": []}})):
        (tmp_path / name).mkdir()
        for key, report in reports.items():
            (tmp_path / name / f"{key}.json").write_text(json.dumps(report))
    ids = tmp_path / "split_ids"
    ids.mkdir()
    (ids / "gao_train.ids").write_text("GAO-1\n")
    (ids / "crs_valid.ids").write_text("R1\nR2\nR3\n../gao/GAO-1\n")
    return tmp_path


def test_sections_are_flattened_in_order(folder):
    ids = folder / "split_ids" / "gao_train.ids"
    assert read_documents(ids, GOV) == {"gao/GAO-1": "Letter\nDear chairman.\nAge\nOld.\nSincerely."}


def test_the_summary_of_gao_leaves_recommendations_out(folder):
    (pair,) = read_pairs(folder / "split_ids" / "gao_train.ids", GOV)
    assert pair.targets == ("Bridges age.\nMost are sound.\nCosts\nThey rise.",)
    assert (pair.pair_id, pair.documents, pair.split) == ("gao/GAO-1", ("gao/GAO-1",), "train")
    assert pair.query == ""


def test_bad_reports_are_rejected_one_by_one(folder):
    ids = folder / "split_ids" / "crs_valid.ids"
    others = [("crs/R3", "missing_file"), ("crs/../gao/GAO-1", "unsafe_name")]
    assert rejected_pairs(ids, GOV) == [("crs/R2", "empty_text"), *others]
    for report, reason in (({**CRS, "reports": {"paragraphs": "no list"}}, "not_a_list"), ([1], "not_an_object")):
        (folder / "crs" / "R2.json").write_text(json.dumps(report))
        assert rejected_pairs(ids, GOV)[0] == ("crs/R2", reason)


def test_only_lists_of_ids_and_lines_of_a_folder_hold_records(folder):
    names = [str(path) for path in sorted(folder.rglob("*")) if path.is_file() and holds_records(str(path), GOV)]
    assert [name.rpartition("/")[2] for name in names] == ["crs_valid.ids", "gao_train.ids"]
    with pytest.raises(FarspanError, match=r"GAO-1\.json: not a file of this data set"):
        plan_ranges(str(folder / "gao" / "GAO-1.json"), GOV, 1 << 20)


def test_a_long_list_is_read_in_ranges(folder):
    for number in range(150):
        (folder / "crs" / f"N{number}.json").write_text(json.dumps({**CRS, "summary": [f"No. {number}."]}))
    ids = folder / "split_ids" / "crs_test.ids"
    ids.write_text("".join(f"N{number}\n" for number in range(150)))
    pieces = plan_ranges(str(ids), GOV, 1 << 30)
    assert len(pieces) == 3
    assert sum(piece.bytes for piece in pieces) == ids.stat().st_size
    pairs = read_pairs(ids, GOV)
    assert [pair.targets for pair in pairs] == [(f"No. {number}.",) for number in range(150)]
    assert {pair.split for pair in pairs} == {"test"}


def test_lines_as_on_the_hub(tmp_path):
    rows = [{"report": "A long one.", "summary": "Short."}, {"id": "x", "document": "B", "summary": "b"}]
    path = write_lines(tmp_path / "validation.jsonl", [*rows, {"report": "C"}, {"report": " ", "summary": "d"}])
    assert rejected_pairs(path, GOV) == [("92", "missing_text"), ("108", "empty_text")]
    path = write_lines(tmp_path / "validation.jsonl", rows)
    assert [pair.targets for pair in read_pairs(path, GOV)] == [("Short.",), ("b",)]
    assert list(read_documents(path, GOV).values()) == ["A long one.", "B"]


# arXiv and PubMed: articles as lists of sentences.
ARTICLE = {
    "article_id": "1234.5678",
    "article_text": ["we study tides .", "they rise ."],
    "abstract_text": ["<S> tides are studied . </S>", "<S>  they rise . </S>"],
    "labels": None,
    "section_names": ["introduction", "empty", "results"],
    "sections": [["we study tides ."], [""], ["they rise .", "and fall ."]],
}
EMPTY = {**ARTICLE, "article_id": "empty", "article_text": []}


@pytest.mark.parametrize("format", ["arxiv", "pubmed"])
def test_an_article_is_a_document_and_its_abstract_the_target(tmp_path, format):
    path = write_lines(tmp_path / "val.txt", [ARTICLE])
    options = ReadOptions(format=format)
    assert read_documents(path, options) == {"1234.5678": "we study tides .\nthey rise ."}
    (pair,) = read_pairs(path, options)
    assert pair.targets == ("tides are studied .\nthey rise .",)
    assert (pair.pair_id, pair.documents, pair.split, pair.query) == ("1234.5678", ("1234.5678",), "validation", "")


def test_sections_are_documents_of_one_pair(tmp_path):
    path = write_lines(tmp_path / "train.txt", [ARTICLE, EMPTY])
    options = ReadOptions(format="arxiv", text_field="sections")
    assert read_documents(path, options)["1234.5678#2"] == "results\nthey rise .\nand fall ."
    assert next(pair.documents for pair in read_pairs(path, options)) == ("1234.5678#0", "1234.5678#2")


def test_the_archive_as_published_is_read_and_bad_articles_are_rejected(tmp_path):
    bad = [EMPTY, {**ARTICLE, "abstract_text": "no list"}, {"article_id": "x"}]
    files = {"train.txt": json.dumps(ARTICLE), "test.txt": "\n".join(map(json.dumps, bad)), "vocab": "the 1\n"}
    path = pack(tmp_path / "arxiv-dataset.zip", {f"arxiv-dataset/{name}": data for name, data in files.items()})
    assert read_reasons(path, ReadOptions(format="arxiv")) == ["empty_document", "not_a_string", "not_a_string"]


# SummScreen: tokenised lines, and the same episodes as people wrote them.
LINES = ReadOptions(format="summ-screen")
RAW = ReadOptions(format="summ-screen-raw")
EPISODE = {"Transcript": ["[ Hall ]", "Ann : Who is there ?", ""], "Recap": ["Ann hears", "a noise ."]}


def line(name, **fields):
    return {"filename": f"{name}.json", **EPISODE, **fields}


def test_lines_are_episodes(tmp_path):
    path = write_lines(tmp_path / "SummScreen" / "ForeverDreaming" / "fd_dev.json", [line("Show-01"), line("Show-02")])
    text = "[ Hall ]\nAnn : Who is there ?"
    assert read_documents(path, LINES) == {"fd/Show-01": text, "fd/Show-02": text}
    pair = read_pairs(path, LINES)[0]
    assert (pair.targets, pair.documents, pair.split) == (("Ann hears\na noise .",), ("fd/Show-01",), "validation")


def test_raw_text_takes_splits_and_choice_from_the_lines(tmp_path):
    lines = write_lines(tmp_path / "SummScreen" / "TVMegaSite" / "tms_test.json", [line("A"), line("B")])
    raw = tmp_path / "SummScreen_raw" / "tms"
    raw.mkdir(parents=True)
    for name in "ABC":
        episode = {"Show Title": "Lamps", "Transcript": [f"Ann: Who's {name}?"], "Recap": [f"Ann asks of {name}."]}
        (raw / f"{name}.json").write_text(json.dumps(episode))
    assert read_documents(lines, RAW) == {"tms/A": "Ann: Who's A?", "tms/B": "Ann: Who's B?"}
    pairs = read_pairs(lines, RAW)
    assert [pair.targets for pair in pairs] == [("Ann asks of A.",), ("Ann asks of B.",)]
    assert [pair.pair_id for pair in pairs] == [pair.pair_id for pair in read_pairs(lines, LINES)]
    assert (pairs[0].split, pairs[0].attributes) == ("test", {"show": "Lamps"})
    (tmp_path / "SummScreen_raw").rename(tmp_path / "SummScreen" / "SummScreen_raw")
    assert read_pairs(lines, RAW) == pairs


def test_bad_episodes_are_rejected(tmp_path):
    folder = tmp_path / "SummScreen" / "ForeverDreaming"
    rows = [line("A", Recap=[]), line("B", Transcript="text"), line("C", Transcript=["", 1])]
    path = write_lines(folder / "fd_train.json", [*rows, {"filename": "D"}, line("E")])
    assert read_reasons(path, LINES) == ["empty_text", "not_a_list", "not_a_list", "missing_text"]
    rows = [line("A"), {**line("B"), "filename": "../B.json"}, {**line("C"), "filename": None}]
    path = write_lines(folder / "fd_train.json", rows)
    assert read_reasons(path, RAW) == ["missing_file", "unsafe_name", "null_text"]


# BookSum: alignments that name chapters and summaries in other files.
BOOKSUM = ReadOptions(format="booksum")
CHAPTERS = "alignments/chapter-level-summary-alignments/chapter_summary_aligned_{}_split.jsonl"
BOOKS = "alignments/book-level-summary-alignments/book_summaries_aligned_{}.jsonl"


def row(source, chapter, section):
    return {
        "bid": "7",
        "is_aggregate": False,
        "source": source,
        "chapter_path": f"all_chapterized_books/7-chapters/{chapter}.txt",
        "summary_path": f"finished_summaries/{source}/A Tale/section_{section}_part_1.txt",
        "book_id": f"A Tale.chapter {chapter}",
        "summary_id": f"chapter {chapter}",
    }


@pytest.fixture(params=["", "scripts"])
def folder_booksum(tmp_path, request):
    chapters = tmp_path / "all_chapterized_books" / "7-chapters"
    chapters.mkdir(parents=True)
    for name, text in {"1": "Tom came.\n\nHe left.\n", "2": "Ann came.\n", "3": "\n", "book_clean": "All.\n"}.items():
        (chapters / f"{name}.txt").write_text(text)
    for source in ("shmoop", "cliffnotes"):
        summaries = tmp_path / request.param / "finished_summaries" / source / "A Tale"
        summaries.mkdir(parents=True)
        for section, summary in {1: "Tom was there.", 2: ["Ann", "was there."], 3: "", 4: None}.items():
            fields = {"name": "x", "summary": summary and (summary if source == "shmoop" else [f"{source}:", *summary])}
            (summaries / f"section_{section}_part_1.txt").write_text(json.dumps(fields))
        (summaries / "section_5_part_1.txt").write_text("plain text")
    return tmp_path


def test_guides_are_references_of_one_chapter(folder_booksum):
    rows = [row("shmoop", 1, 1), row("shmoop", 2, 2), row("cliffnotes", 1, 2)]
    path = write_lines(folder_booksum / CHAPTERS.format("val"), rows)
    assert read_documents(path, BOOKSUM) == {"7-chapters/1": "Tom came.\n\nHe left.\n", "7-chapters/2": "Ann came.\n"}
    first, second = read_pairs(path, BOOKSUM)
    assert first.targets == ("Tom was there.", "cliffnotes:\nAnn\nwas there.")
    book = {"bid": "7", "book_id": "A Tale.chapter 1", "is_aggregate": False}
    assert first.attributes == {**book, "sources": ["shmoop", "cliffnotes"]}
    assert (first.pair_id, first.documents, first.split) == ("7-chapters/1", ("7-chapters/1",), "validation")
    assert second.targets == ("Ann\nwas there.",)


def test_books_are_read_alike(folder_booksum):
    paths = {"book_path": "all_chapterized_books/7-chapters/book_clean.txt"}
    paths["summary_path"] = row("shmoop", 1, 1)["summary_path"]
    book = {"bid": "7", "source": "shmoop", "title": "A Tale", **paths}
    path = write_lines(folder_booksum / BOOKS.format("test"), [book])
    assert read_documents(path, BOOKSUM) == {"7-chapters/book_clean": "All.\n"}
    (pair,) = read_pairs(path, BOOKSUM)
    assert (pair.split, pair.attributes["title"]) == ("test", "A Tale")


def test_rows_without_summary_are_rejected_and_the_others_of_the_chapter_kept(folder_booksum):
    bad = [row("cliffnotes", 1, section) for section in (3, 4, 5, 6)]
    outside = {**row("shmoop", 1, 1), "summary_path": "../../secret"}
    path = write_lines(folder_booksum / CHAPTERS.format("train"), [*bad, row("shmoop", 1, 1), outside])
    reasons = ["empty_text", "null_text", "broken_json", "missing_file", "unsafe_name"]
    assert rejected_pairs(path, BOOKSUM) == [("7-chapters/1", reason) for reason in reasons]
    assert list(read_documents(path, BOOKSUM)) == ["7-chapters/1"]


def test_chapters_without_text_and_broken_rows_are_rejected(folder_booksum):
    path = folder_booksum / CHAPTERS.format("train")
    nowhere = {"source": "shmoop", "summary_path": row("shmoop", 1, 1)["summary_path"]}
    write_lines(path, [row("shmoop", 3, 1), row("shmoop", 9, 1), nowhere, row("shmoop", 2, 3)])
    with path.open("a") as file:
        file.write("{broken\n\n")
    reasons = read_reasons(path, BOOKSUM)
    assert reasons == ["empty_text", "missing_file", "missing_text", "empty_text", "broken_json"]


# Multi-XScience: abstracts of a paper and of those that it cites.
PAPER = {
    "aid": "math1", "mid": "7", "abstract": "We sort.", "related_work": "As @cite_1  and @cite_23 show.",
    "ref_abstract": {"@cite_1": {"mid": "8", "abstract": "They sort."}, "@cite_23": {"mid": "9", "abstract": ""}},
}  # fmt: skip
HUB = {"cite_N": ["@cite_1", "@cite_23"], "mid": ["8", "9"], "abstract": ["They sort.", ""]}


@pytest.mark.parametrize("cited", [PAPER["ref_abstract"], HUB], ids=["original", "hub"])
@pytest.mark.parametrize("array", [False, True])
def test_related_work_is_written_from_abstracts(cited, array, tmp_path):
    path, record = tmp_path / "val.json", {**PAPER, "ref_abstract": cited}
    path.write_text(json.dumps([record]) if array else json.dumps(record) + "\n")
    options = ReadOptions(format="multi-xscience")
    assert read_documents(path, options) == {"math1": "We sort.", "math1#cite_1": "They sort."}
    (pair,) = read_pairs(path, options)
    assert (pair.documents, pair.targets, pair.split) == (
        ("math1", "math1#cite_1"),
        ("As cite and cite show.",),
        "validation",
    )


# MediaSum: summaries of interviews, whose splits are a file of their own.
INTERVIEW = {"id": "NPR-1", "summary": "Rain.", "utt": ["Rain?", "Yes."], "speaker": ["ANN", "BOB"]}


def test_summaries_of_interviews_have_the_documents_of_the_format_and_listed_splits(tmp_path):
    options = ReadOptions(format="mediasum")
    path = tmp_path / "news_dialogue.json"
    path.write_text(json.dumps([INTERVIEW, {**INTERVIEW, "id": "NPR-2"}]))
    assert [pair.split for pair in read_pairs(path, options)] == [None, None]
    splits = {"train": ["NPR-1"], "val": [], "test": ["NPR-2"]}
    (tmp_path / "train_val_test_split.json").write_text(json.dumps(splits))
    pairs = read_pairs(path, options)
    assert [(pair.pair_id, pair.split, pair.targets) for pair in pairs] == [
        ("NPR-1", "train", ("Rain.",)),
        ("NPR-2", "test", ("Rain.",)),
    ]
    assert read_all(path, options).keys == [pair.documents[0] for pair in pairs]
    path.write_text(json.dumps([{**INTERVIEW, "summary": " "}, {**INTERVIEW, "id": "NPR-3"}]))
    assert read_reasons(path, options) == ["empty_text", "unknown_split"]
    assert not holds_records("train_val_test_split.json", options)
