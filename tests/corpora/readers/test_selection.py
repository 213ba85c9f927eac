"""The choice of a file's reader, and files that cannot be read at all."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.readers import FORMATS, ReadOptions
from corpora.readers.selection import check_fields, plan_ranges
from corpora.storage import files
from tests.corpora.readers import read_all, reasons


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("c4-train.00000-of-01024.json.gz", "jsonl"),
        ("00.JSONL.zst", "jsonl"),
        ("a.jsonl.bz2", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("a.parquet", "parquet"),
        ("data-00000-of-00001.arrow", "arrow"),
        ("a.feather", "arrow"),
        ("book.epub.txt", "text"),
        ("a.text.gz", "text"),
        ("a.txt.xz", "text"),
    ],
)
def test_the_name_tells_the_format(tmp_path, name, format):
    (tmp_path / name).write_bytes(b"of any kind")
    (piece,) = plan_ranges(str(tmp_path / name), files, ReadOptions(), 1 << 20)
    assert piece.format == format


@pytest.mark.parametrize("name", ["README.md", "a.csv", "jsonl", "x.gz", "x.tar.gz"])
def test_an_unknown_name_is_an_error_with_a_cure(tmp_path, name):
    (tmp_path / name).write_text("of any kind")
    for act in (plan_ranges, check_fields):
        with pytest.raises(FarspanError, match=f"{name}: its name does not tell the format.*--format"):
            act(str(tmp_path / name), files, ReadOptions(), *[1] * (act is plan_ranges))
    assert plan_ranges(str(tmp_path / name), files, ReadOptions(format="lines"), 1)[0].format == "lines"


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("target_bytes", [1, 1 << 30])
def test_a_folder_in_place_of_a_file_is_one_reject(tmp_path, format, target_bytes):
    (tmp_path / "folder").mkdir()
    path, options = str(tmp_path / "folder"), ReadOptions(format=format)
    check_fields(path, files, options)
    block = read_all(path, options, target_bytes)
    assert reasons(block) == [("0", "not_a_file")]
    assert path in block.rejects[0].detail
    assert block.read == 1


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_vanished_is_an_error(tmp_path, format):
    with pytest.raises(FarspanError, match="vanished: vanished since it was found"):
        plan_ranges(str(tmp_path / "vanished"), files, ReadOptions(format=format), 1)


@pytest.mark.parametrize(
    "name", ["a.parquet", "a.arrow", "b.arrow", "a.jsonl.gz", "a.jsonl.bz2", "a.jsonl.xz", "a.jsonl.zst", "a.txt.gz"]
)
def test_other_content_than_the_name_says(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"ARROW1\0\0 or not" if name == "b.arrow" else b"<html>not found</html>" * 40)
    check_fields(str(path), files, ReadOptions())
    assert reasons(read_all(path, target_bytes=3)) == [("0", "unreadable_file")]


def test_options_that_do_not_fit_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "a.parquet.gz"):
        (tmp_path / name).write_text("of any kind")
    with pytest.raises(FarspanError, match=r"a\.txt: format text has no field 'id'; leave --id-field out"):
        plan_ranges("a.txt", files, ReadOptions(id_field="id"), 1)
    with pytest.raises(FarspanError, match=r"a\.txt: format lines has no field 'c'; leave --cluster-field out"):
        plan_ranges("a.txt", files, ReadOptions(format="lines", cluster_field="c"), 1)
    with pytest.raises(FarspanError, match=r"a\.txt: format quality gives no titles; leave --title-field out"):
        plan_ranges("a.txt", files, ReadOptions(format="quality", title_field="title"), 1)
    with pytest.raises(FarspanError, match=r"unpack the \.gz first"):
        plan_ranges("a.parquet.gz", files, ReadOptions(), 1)
    with pytest.raises(FarspanError, match="ranges of 0 bytes"):
        plan_ranges("a.txt", files, ReadOptions(), 0)
