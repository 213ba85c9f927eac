"""Readers of each layout of files, from a function that turns a record into documents and pairs."""

from __future__ import annotations

import gzip
import json
import zipfile

import pytest

from corpora.errors import FarspanError
from corpora.readers.blocks import BlockBuilder
from corpora.readers.options import ReadOptions
from corpora.readers.records import BadRecord, DamagedFile, Range
from corpora.readers.streams import whole_file
from corpora.readers.task_data.declaration import RawDocument, RawTask
from corpora.readers.task_data.files import (
    ENTRIES_A_RANGE,
    by_name,
    indexed,
    json_document,
    json_field,
    json_lines,
    json_object,
    json_records,
    text_of,
    texts_of,
    whole_files,
)
from corpora.storage import files

RECORDS = [{"text": f"text {number}"} for number in range(30)]


def parse(record, place):
    """The record's text as a document that is named after its place."""
    return RawTask([RawDocument(f"{place.member}:{place.key}", text_of(record, "text"))], [])


def read(reader, path, target=1 << 30):
    """Name -> text of all documents, the places and reasons of rejects, and the number of ranges."""
    found, rejects, pieces = {}, [], reader.plan(str(path), files, target)
    for cut in pieces:
        builder = BlockBuilder(str(path), reader.resolve(ReadOptions()))
        piece = Range(str(path), "", *cut, path.stat().st_size)
        positions = list(reader.read(piece, files, builder))
        assert positions[-1] <= piece.bytes
        block = builder.take(0)
        found |= dict(zip(block.ids, block.texts, strict=True))
        rejects += [(reject.key, reject.reason) for reject in block.rejects]
    return found, rejects, len(pieces)


def lines(records=RECORDS):
    return "".join(json.dumps(record) + "\n" for record in records).encode()


TEXTS = [record["text"] for record in RECORDS]


@pytest.mark.parametrize("target", [100, 1 << 30])
def test_lines_are_read_in_ranges(tmp_path, target):
    path = tmp_path / "train.jsonl"
    path.write_bytes(lines())
    found, rejects, ranges = read(json_lines(parse), path, target)
    assert (list(found.values()), rejects) == (TEXTS, [])
    assert list(found)[1] == f":{len(lines(RECORDS[:1]))}"
    assert (ranges > 1) == (target == 100)
    path.with_name("train.jsonl.gz").write_bytes(gzip.compress(lines()))
    assert read(json_lines(parse), path.with_name("train.jsonl.gz"), target)[0] == found


def test_lines_of_archives_are_named_after_their_member(tmp_path):
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/train.jsonl", lines(RECORDS[:2]))
        archive.writestr("a/notes.md", "no record")
        archive.writestr("a/dev.jsonl", lines([{"no": "text"}, RECORDS[2]]))
    found, rejects, _ = read(json_lines(parse), path)
    assert list(found.values()) == TEXTS[:3]
    assert next(iter(found)) == "a/train.jsonl:0"
    assert rejects == [("a/dev.jsonl:0", "missing_text")]


@pytest.mark.parametrize("target", [100, 1 << 30])
def test_an_array_is_read_record_by_record(tmp_path, target):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([*RECORDS, 7]))
    found, rejects, ranges = read(json_records(parse), path, target)
    assert (list(found.values()), ranges) == (TEXTS, 1)
    assert [reason for _, reason in rejects] == ["not_an_object"]
    path.write_bytes(lines())
    assert list(read(json_records(parse), path, target)[0].values()) == TEXTS


def test_an_array_in_a_field_has_numbered_records(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"version": "1.0", "data": [*RECORDS, 7], "more": {}}))
    found, rejects, _ = read(json_field(parse, "data"), path)
    assert found == {f":{number}": text for number, text in enumerate(TEXTS)}
    assert rejects == [("30", "not_an_object")]


def test_records_of_an_object_have_their_names(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"one": RECORDS[0], "two": 2, "three": RECORDS[1]}))
    assert read(json_document(parse), path)[:2] == ({":one": TEXTS[0], ":three": TEXTS[1]}, [("two", "not_an_object")])
    path.write_text("[]")
    assert read(json_document(parse), path)[:2] == ({}, [("0", "not_an_object")])


def test_whole_files_may_reject_one_record_or_all(tmp_path):
    def contents(data, place):
        for number, word in enumerate(data.decode().split()):
            if word == "END":
                raise BadRecord("broken_table", "it ends here")
            yield str(number), BadRecord("empty_text", "") if word == "-" else RawTask([RawDocument(word, word)], [])

    path = tmp_path / "a.csv"
    path.write_text("a - b END c")
    found = read(whole_files(contents), path)
    assert found == ({"a": "a", "b": "b"}, [("1", "empty_text"), ("0", "broken_table")], 1)


def test_layouts_are_told_apart_by_name(tmp_path):
    data = by_name({r".*\.jsonl": json_lines(parse), r".*\.json": json_records(parse)})
    for name, content in (("a.jsonl", lines()), ("a.json", json.dumps(RECORDS).encode())):
        (tmp_path / name).write_bytes(content)
        assert list(read(data, tmp_path / name)[0].values()) == TEXTS
    with pytest.raises(FarspanError, match=r"a\.txt: not a file of this data set, whose names match"):
        data.plan(str(tmp_path / "a.txt"), files, 1)


def test_a_damaged_file_is_not_believed(tmp_path):
    path = tmp_path / "a.json.gz"
    packed = gzip.compress(b"whole")
    path.write_bytes(packed)
    assert whole_file(str(path), files) == b"whole"
    path.write_bytes(packed[:-6])
    with pytest.raises(DamagedFile) as caught:
        whole_file(str(path), files)
    assert caught.value.reason == "truncated_file"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: text_of({}, "a"), "missing_text"),
        (lambda: text_of({"a": None}, "a"), "null_text"),
        (lambda: text_of({"a": 1}, "a"), "not_a_string"),
        (lambda: texts_of({"a": "x"}, "a"), "not_a_string"),
        (lambda: texts_of({"a": ["x", 1]}, "a"), "not_a_string"),
        (lambda: json_object(b"[1]"), "not_an_object"),
        (lambda: json_object(b"{"), "broken_json"),
        (lambda: json_object(b'"\xff"'), "invalid_utf8"),
    ],
)
def test_other_values_are_rejected(call, reason):
    with pytest.raises(BadRecord) as caught:
        call()
    assert caught.value.reason == reason
    assert texts_of({"a": ["x", ""]}, "a") == ("x", "")


# Index files, whose entries name others.


def entries(data, place):
    if data.startswith(b"!"):
        raise BadRecord("broken_table", "no table")
    return [(name, name.upper()) for name in data.decode().split()]


def parse_entry(entry, place):
    if entry == "BAD":
        raise BadRecord("missing_file", f"no {entry}")
    return RawTask([RawDocument(place.key, entry)], [])


INDEX = indexed(entries, parse_entry, r".*\.ids")


@pytest.mark.parametrize("count", [0, 1, ENTRIES_A_RANGE, ENTRIES_A_RANGE + 1, 3 * ENTRIES_A_RANGE])
def test_every_entry_is_read_once_in_order(tmp_path, count):
    path = tmp_path / "a.ids"
    path.write_text("".join(f"n{number}\n" for number in range(count)))
    assert sum(cut.bytes for cut in INDEX.plan(str(path), files, 1)) == path.stat().st_size
    found, rejects, ranges = read(INDEX, path, 1)
    assert found == {f"n{number}": f"N{number}" for number in range(count)}
    assert rejects == []
    assert ranges == max(1, -(-count // ENTRIES_A_RANGE))


def test_bad_entries_and_files_are_rejected(tmp_path):
    path = tmp_path / "a.ids"
    path.write_text("a bad b")
    assert read(INDEX, path) == ({"a": "A", "b": "B"}, [("bad", "missing_file")], 1)
    path.write_text("! a b")
    assert read(INDEX, path) == ({}, [("0", "broken_table")], 1)


def test_a_compressed_index_is_unpacked(tmp_path):
    path = tmp_path / "a.ids.gz"
    path.write_bytes(gzip.compress(b"a b"))
    assert read(INDEX, path)[0] == {"a": "A", "b": "B"}
    path.write_bytes(path.read_bytes()[:-9])
    assert len(INDEX.plan(str(path), files, 1)) == 1
