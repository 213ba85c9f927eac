"""GovReport: nested sections by id, splits in lists of ids, and lines as on the hub."""

from __future__ import annotations

import json

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.selection import holds_records, plan_ranges
from corpora.storage import files
from tests.corpora.readers.tasks import read_documents, read_pairs, rejected_pairs, write_lines

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
    assert rejected_pairs(ids, GOV) == [
        ("crs/R2", "empty_text"),
        ("crs/R3", "missing_file"),
        ("crs/../gao/GAO-1", "unsafe_name"),
    ]
    (folder / "crs" / "R2.json").write_text(json.dumps({**CRS, "reports": {"paragraphs": "no list"}}))
    assert rejected_pairs(ids, GOV)[0] == ("crs/R2", "not_a_list")
    (folder / "crs" / "R2.json").write_text("[1]")
    assert rejected_pairs(ids, GOV)[0] == ("crs/R2", "not_an_object")


def test_only_lists_of_ids_and_lines_of_a_folder_hold_records(folder):
    names = [str(path) for path in sorted(folder.rglob("*")) if path.is_file() and holds_records(str(path), GOV)]
    assert [name.rpartition("/")[2] for name in names] == ["crs_valid.ids", "gao_train.ids"]
    with pytest.raises(FarspanError, match=r"GAO-1\.json: not a file of this data set"):
        plan_ranges(str(folder / "gao" / "GAO-1.json"), files, GOV, 1 << 20)


def test_a_long_list_is_read_in_ranges(folder):
    for number in range(150):
        (folder / "crs" / f"N{number}.json").write_text(json.dumps({**CRS, "summary": [f"No. {number}."]}))
    ids = folder / "split_ids" / "crs_test.ids"
    ids.write_text("".join(f"N{number}\n" for number in range(150)))
    pieces = plan_ranges(str(ids), files, GOV, 1 << 30)
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
