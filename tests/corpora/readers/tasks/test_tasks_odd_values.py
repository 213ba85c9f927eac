"""Records with one odd value: whatever it is and wherever it stands, the record is read or rejected."""

import json
from copy import deepcopy

import pytest

from corpora.readers import ReadOptions
from corpora.readers.raw_tasks import Place, RawPair, RawTask
from corpora.readers.records import BadRecord
from corpora.readers.tasks import (
    booksum,
    contract_nli,
    gov_report,
    hotpot_qa,
    long_bench,
    mediasum,
    multi_xscience,
    qasper,
    qmsum,
    quality,
    summ_screen,
    trivia_qa,
    wiki_hop,
)
from tests.corpora.readers.tasks import test_collections, test_questions, test_stories, test_summaries

ODD = (None, True, 7, -1.5, "", "\x00", "../x", "word", [], [[]], [None], [7], ["a", "b", "c"], {}, {"a": None})

CASES = {
    "booksum": (test_summaries.row("shmoop", 1, 1), lambda record, place: chapter(record, place)),
    "contract_nli": (
        {"documents": [test_questions.contract(1)], "labels": test_questions.LABELS},
        lambda record, place: contract(record, place),
    ),
    "gao": (test_summaries.GAO, lambda record, place: report(record, place, "gao")),
    "crs": (test_summaries.CRS, lambda record, place: report(record, place, "crs")),
    "gov_report": ({"id": "1", "report": "A.", "summary": "B."}, gov_report.parse_line),
    "hotpot_qa": (test_questions.QUESTION, hotpot_qa.parse),
    "long_bench": (test_collections.LONG, long_bench.parse),
    "mediasum": (test_summaries.INTERVIEW, mediasum.parse),
    "multi_xscience": (test_summaries.PAPER, multi_xscience.parse),
    "qasper": (test_questions.PAPER, qasper.parse),
    "qmsum": (test_collections.MEETING, qmsum.parse),
    "quality": (test_questions.line("W", test_questions.choice(1)), quality.parse),
    "summ_screen": (test_summaries.line("A"), summ_screen.parse),
    "summ_screen_raw": (test_summaries.line("A"), summ_screen.parse_raw),
    "trivia_qa": (test_stories.question("q", test_stories.page("Fox")), trivia_qa.parse),
    "wiki_hop": (test_questions.QUERY, wiki_hop.parse),
}


def contract(record, place):
    contracts = contract_nli.contracts(json.dumps(record).encode(), place)
    return contract_nli.parse(contracts[0][1], place) if contracts else RawTask([], [])


def chapter(record, place):
    ((_, rows),) = booksum.chapters(json.dumps(record).encode(), place)
    return booksum.parse(rows, place)


def report(record, place, agency):
    folder = place.path.rpartition("/qa/")[0]
    with open(f"{folder}/{agency}/R.json", "w") as file:
        json.dump(record, file)
    return gov_report.parse_id(f"{agency}/R", place)


def places(value, path=()):
    """The path to every value inside a record."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(record, path):
    """The record without the value at a path, and with each of the odd values there."""
    for odd in ("gone", *ODD):
        copy = deepcopy(record)
        inside = copy
        for key in path[:-1]:
            inside = inside[key]
        if odd == "gone":
            del inside[path[-1]]
        else:
            inside[path[-1]] = odd
        yield copy


@pytest.fixture
def place(tmp_path):
    for folder in ("qa", "gao", "crs", "evidence/wikipedia", "all_chapterized_books/7-chapters", "SummScreen_raw/fd"):
        (tmp_path / folder).mkdir(parents=True)
    summaries = tmp_path / "finished_summaries" / "shmoop" / "A Tale"
    summaries.mkdir(parents=True)
    (summaries / "section_1_part_1.txt").write_text('{"summary": "Short."}')
    (tmp_path / "all_chapterized_books" / "7-chapters" / "1.txt").write_text("Long.")
    (tmp_path / "evidence" / "wikipedia" / "Fox.txt").write_text("A fox.")
    (tmp_path / "SummScreen_raw" / "fd" / "A.json").write_text(json.dumps(test_summaries.EPISODE))
    return Place(str(tmp_path / "qa" / "fd_train.json"), "", "key", ReadOptions())


@pytest.mark.parametrize("name", CASES)
def test_a_record_with_an_odd_value_is_read_or_rejected(name, place):
    record, parse = CASES[name]
    assert parse(deepcopy(record), place).pairs
    read = 0
    for path in list(places(record)):
        for copy in changed(record, path):
            try:
                task = parse(copy, place)
            except BadRecord:
                continue
            read += 1
            assert all(isinstance(text, str) for document in task.documents for text in document)
            for pair in task.pairs:
                check(pair)
    assert read


def check(pair: RawPair) -> None:
    """All values have their types, and survive JSON."""
    assert isinstance(pair.pair_id, str)
    assert pair.pair_id
    texts = (*pair.documents, pair.query, *pair.targets, *(pair.references or ()), *(pair.options or ()))
    assert all(isinstance(text, str) for text in texts)
    assert RawPair.from_json(pair.to_json()) == pair
