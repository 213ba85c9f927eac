"""Readers of each layout of task data, from a function that turns a record into documents and pairs."""

import gzip
import io
import json
import zipfile

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.blocks import BlockBuilder
from corpora.readers.formats import FORMATS
from corpora.readers.raw_fields import (
    id_of,
    list_of,
    object_of,
    require_text,
    require_texts,
    task_of_questions,
    text_beside,
    text_of,
)
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask
from corpora.readers.records import BadRecord, DamagedFile, Range
from corpora.readers.selection import plan_ranges
from corpora.readers.streams import whole_file
from corpora.readers.task_files import (
    ENTRIES_A_RANGE,
    by_name,
    index_files,
    json_document,
    json_field,
    json_lines,
    json_object,
    json_records,
    whole_files,
)
from corpora.readers.tasks import DATA_SETS
from corpora.readers.tasks.arxiv import _texts_of
from corpora.storage import files

# Readers of each layout of files, from a function that turns a record into documents and pairs.
RECORDS = [{"text": f"text {number}"} for number in range(30)]


def parse(record, place):
    """The record's text as a document that is named after its place."""
    return RawTask([RawDocument(f"{place.member}:{place.key}", text_of(record, "text"))], [])


def read(reader, path, target=1 << 30):
    """Name -> text of all documents, the places and reasons of rejects, and the number of ranges."""
    found, rejects, pieces = {}, [], reader.plan(str(path), target)
    for cut in pieces:
        builder = BlockBuilder(str(path), reader.resolve(ReadOptions()))
        piece = Range(*(str(path), "", *cut, path.stat().st_size))
        positions = list(reader.read(piece, builder))
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


def test_layouts_are_told_apart_by_name(tmp_path):
    data = by_name({r".*\.jsonl": json_lines(parse), r".*\.json": json_records(parse)})
    for name, content in (("a.jsonl", lines()), ("a.json", json.dumps(RECORDS).encode())):
        (tmp_path / name).write_bytes(content)
        assert list(read(data, tmp_path / name)[0].values()) == TEXTS
    with pytest.raises(FarspanError, match=r"a\.txt: not a file of this data set, whose names match"):
        data.plan(str(tmp_path / "a.txt"), 1)


def test_a_damaged_file_is_not_believed(tmp_path):
    path = tmp_path / "a.json.gz"
    packed = gzip.compress(b"whole")
    path.write_bytes(packed)
    assert whole_file(str(path)) == b"whole"
    path.write_bytes(packed[:-6])
    with pytest.raises(DamagedFile) as caught:
        whole_file(str(path))
    assert caught.value.reason == "truncated_file"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: text_of({}, "a"), "missing_text"),
        (lambda: text_of({"a": None}, "a"), "null_text"),
        (lambda: text_of({"a": 1}, "a"), "not_a_string"),
        (lambda: _texts_of({"a": "x"}, "a"), "not_a_string"),
        (lambda: _texts_of({"a": ["x", 1]}, "a"), "not_a_string"),
        (lambda: json_object(b"[1]"), "not_an_object"),
        (lambda: json_object(b"{"), "broken_json"),
        (lambda: json_object(b'"\xff"'), "invalid_utf8"),
    ],
)
def test_other_values_are_rejected(call, reason):
    with pytest.raises(BadRecord) as caught:
        call()
    assert caught.value.reason == reason
    assert _texts_of({"a": ["x", ""]}, "a") == ("x", "")


# Index files, whose entries name others.
def entries(data, place):
    if data.startswith(b"!"):
        raise BadRecord("broken_table", "no table")
    return [(name, name.upper()) for name in data.decode().split()]


def parse_entry(entry, place):
    if entry == "BAD":
        raise BadRecord("missing_file", f"no {entry}")
    return RawTask([RawDocument(place.key, entry)], [])


INDEX = index_files(entries, parse_entry, r".*\.ids")


@pytest.mark.parametrize("count", [0, 1, ENTRIES_A_RANGE, ENTRIES_A_RANGE + 1, 3 * ENTRIES_A_RANGE])
@pytest.mark.parametrize("whole", [False, True])
def test_every_entry_is_read_once_in_order(tmp_path, count, whole):
    index = whole_files(entries, parse_entry) if whole else INDEX
    path = tmp_path / "a.ids"
    path.write_text("".join(f"n{number}\n" for number in range(count)))
    assert sum(cut.bytes for cut in index.plan(str(path), 1)) == path.stat().st_size
    found, rejects, ranges = read(index, path, 1)
    assert found == {f"n{number}": f"N{number}" for number in range(count)}
    assert rejects == []
    assert ranges == (1 if whole else max(1, -(-count // ENTRIES_A_RANGE)))


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
    assert len(INDEX.plan(str(path), 1)) == 1


# Checked fields: what each takes, and the reason for what it does not take.
RECORD = {"text": " a ", "blank": " \n", "null": None, "list": ["a", "", "b"], "odd": ["a", 1], "empty": [], "n": 7}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: require_text(RECORD, "text"), " a "),
        (lambda: require_text(RECORD, "blank"), "empty_text"),
        (lambda: require_text(RECORD, "null"), "null_text"),
        (lambda: require_text(RECORD, "n"), "not_a_string"),
        (lambda: require_text(RECORD, "gone"), "missing_text"),
        (lambda: require_texts(RECORD, "list"), ["a", "b"]),
        (lambda: require_texts(RECORD, "empty"), "empty_text"),
        (lambda: require_texts(RECORD, "odd"), "not_a_list"),
        (lambda: list_of(RECORD, "empty", dict), []),
        (lambda: list_of(RECORD, "text", str), "not_a_list"),
        (lambda: object_of({"a": {}}, "a"), {}),
        (lambda: object_of(RECORD, "list"), "not_an_object"),
        (lambda: id_of(RECORD, "n"), "7"),
        (lambda: id_of({"a": True}, "a"), "missing_id"),
        (lambda: id_of(RECORD, "blank"), "missing_id"),
    ],
)
def test_a_field_is_taken_or_the_record_rejected(call, expected):
    assert outcome(call) == expected


def outcome(call):
    """The value of a call, or its reason for rejecting the record."""
    try:
        return call()
    except BadRecord as bad:
        return bad.reason


def test_the_first_place_with_the_file_counts(tmp_path):
    (tmp_path / "qa").mkdir()
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9")
    (tmp_path / "blank.txt").write_text("\n")
    (tmp_path / "latin.txt").write_bytes(b"\xe9")
    place = Place(str(tmp_path / "qa" / "x.json"), "", "0", ReadOptions())
    assert text_beside(place, "../a.txt", "../b.txt", "../blank.txt") == "café"
    for names, reason in ((("a.txt", "../a.txt"), "missing_file"), (("../blank.txt",), "empty_text")):
        with pytest.raises(BadRecord, match=names[0].removeprefix("../")) as caught:
            text_beside(place, *names)
        assert caught.value.reason == reason
    with pytest.raises(BadRecord, match=r"latin\.txt: byte 0"):
        text_beside(place, "../latin.txt")


def test_a_bad_question_leaves_its_neighbours():
    def pair(number):
        if number == 1:
            raise BadRecord("empty_text", "blank")
        return RawPair(pair_id=str(number), documents=("d",))

    task = task_of_questions([RawDocument("d", "text")], range(3), pair)
    assert [item.pair_id for item in task.pairs] == ["0", "2"]
    assert [bad.reason for bad in task.bad] == ["empty_text"]


# Places of records: names, splits, and other files of the data set on disks and stores.
@pytest.mark.parametrize("root", ["/data/trivia", "data", "s3://bucket/trivia", "s3://bucket"])
def test_other_files_are_named_from_the_folder_of_the_record(monkeypatch, root):
    """By names without ``..``, which stores do not know."""
    known = (f"{root}/evidence/Fox.txt", f"{root}/qa/qaps.csv")

    def open_known(path):
        if path not in known:
            raise FileNotFoundError(2, "No such file", path)
        return io.BytesIO(path.encode())

    monkeypatch.setattr(files, "open", open_known)
    place = Place(f"{root}/qa/dev.json", "", "0", ReadOptions())
    assert place.read_beside("../evidence/Fox.txt") == known[0].encode()
    assert place.read_beside("qaps.csv") == known[1].encode()
    with pytest.raises(BadRecord, match=r"evidence/Dog\.txt: No such file"):
        place.read_beside("../evidence/Dog.txt")


@pytest.mark.parametrize(
    ("path", "member", "split"),
    [
        ("a/train.jsonl", "", "train"),
        ("a/QuALITY.v1.0.1.htmlstripped.dev", "", "validation"),
        ("a/test/0000.parquet", "", "test"),
        ("a/wikipedia-test-without-answers.json", "", "test"),
        ("a/quality.zip", "quality/val.jsonl", "validation"),
        ("a/crs_valid.ids", "", "validation"),
        ("a/train_test.jsonl", "", None),
        ("a/training/x.jsonl", "", "train"),
        ("training-data/x.jsonl", "", None),
        ("latest/mine/x.jsonl", "", None),
    ],
)
def test_the_split_is_told_by_the_file_or_its_folders(path, member, split):
    assert Place(path, member, "0", ReadOptions()).split == split


# Data sets of tasks as readers: what holds for all of them.
@pytest.mark.parametrize("name", sorted(set(DATA_SETS) - set(FORMATS)))
@pytest.mark.parametrize("suffix", [".pt", ".pkl"])
def test_a_pickle_is_refused_with_the_cure(tmp_path, name, suffix):
    path = tmp_path / f"train{suffix}"
    path.write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(FarspanError, match=rf"train\{suffix}: a pickle, .* never loaded; save it again as JSON lines"):
        plan_ranges(str(path), ReadOptions(format=name), 1 << 20)
