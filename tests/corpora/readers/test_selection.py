"""The choice of a file's reader, its declaration and options, and checks of records."""

import json
import os
from itertools import pairwise

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.readers import FORMATS, ReadOptions
from corpora.readers.blocks import DOCUMENT_ID, Reader
from corpora.readers.formats.huggingface import data_files
from corpora.readers.records import group
from corpora.readers.selection import check_fields, formats_by_suffix, load_reader, plan_ranges
from corpora.storage import files
from tests.corpora.readers import read_all, reasons


# The choice of a file's reader, and files that cannot be read at all.
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
    (piece,) = plan_ranges(str(tmp_path / name), ReadOptions(), 1 << 20)
    assert piece.format == format


@pytest.mark.parametrize("name", ["README", "a.csv", "jsonl", "x.gz", "x.tar.gz"])
def test_an_unknown_name_is_an_error_with_a_cure(tmp_path, name):
    (tmp_path / name).write_text("of any kind")
    for act in (plan_ranges, check_fields):
        with pytest.raises(FarspanError, match=f"{name}: its name does not tell the format.*--format"):
            act(str(tmp_path / name), ReadOptions(), *[1] * (act is plan_ranges))
    assert plan_ranges(str(tmp_path / name), ReadOptions(format="lines"), 1)[0].format == "lines"


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("target_bytes", [1, 1 << 30])
def test_a_folder_in_place_of_a_file_is_one_reject(tmp_path, format, target_bytes):
    (tmp_path / "folder").mkdir()
    path, options = str(tmp_path / "folder"), ReadOptions(format=format)
    check_fields(path, options)
    block = read_all(path, options, target_bytes)
    assert reasons(block) == [("0", "not_a_file")]
    assert path in block.rejects[0].detail
    assert block.read == 1


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_vanished_is_an_error(tmp_path, format):
    with pytest.raises(FarspanError, match="vanished: vanished since it was found"):
        plan_ranges(str(tmp_path / "vanished"), ReadOptions(format=format), 1)


@pytest.mark.parametrize(
    "name", ["a.parquet", "a.arrow", "b.arrow", "a.jsonl.gz", "a.jsonl.bz2", "a.jsonl.xz", "a.jsonl.zst", "a.txt.gz"]
)
def test_other_content_than_the_name_says(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"ARROW1\0\0 or not" if name == "b.arrow" else b"<html>not found</html>" * 40)
    check_fields(str(path), ReadOptions())
    assert reasons(read_all(path, target_bytes=3)) == [("0", "unreadable_file")]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.txt", {"id_field": "id"}, r"a\.txt: format text has no field 'id'; leave --id-field out"),
        ("a.txt", {"format": "lines", "cluster_field": "c"}, r"a\.txt: .* lines has no field 'c'; leave --cluster-f"),
        ("a.txt", {"format": "quality", "title_field": "t"}, r"a\.txt: .* quality gives no titles; leave --title-f"),
        ("a.parquet.gz", {}, r"unpack the \.gz first"),
    ],
)
def test_options_that_do_not_fit_the_file(tmp_path, name, options, message):
    (tmp_path / name).write_text("of any kind")
    with pytest.raises(FarspanError, match=message):
        plan_ranges(str(tmp_path / name), ReadOptions(**options), 1)
    with pytest.raises(FarspanError, match="ranges of 0 bytes"):
        plan_ranges(str(tmp_path / name), ReadOptions(format="lines"), 0)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 100))
def test_pieces_are_grouped_up_to_the_target(sizes, target):
    cuts = group(sizes, target)
    assert [cuts[0].start, *(cut.stop for cut in cuts)] == [*(cut.start for cut in cuts), len(sizes)]
    assert [cut.bytes for cut in cuts] == [sum(sizes[cut.start : cut.stop]) for cut in cuts]
    assert all(cut.bytes <= target or cut.stop - cut.start == 1 for cut in cuts)
    joined = [left.bytes + sizes[right.start] for left, right in pairwise(cuts)]
    assert all(size > target for size in joined), "a group ends only where the next piece does not fit"


# Options for reading raw files.
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "--format csv: unknown; give one of arrow, books3"),
        ({"text_field": ""}, "--text-field"),
        ({"id_field": ""}, "--id-field"),
        ({"cluster_field": ""}, "--cluster-field"),
        ({"title_field": ""}, "--title-field"),
        ({"preprocess": ("join-lines", "shout")}, "--preprocess shout: unknown; give names among strip-gutenberg"),
        ({"separator": "==="}, "--separator '===': .* for --format stories only"),
        ({"format": "stories", "separator": " "}, "--separator ' '"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(FarspanError, match=message):
        ReadOptions(**options)


# Declarations of formats.
def test_every_format_declares_itself_and_no_suffix_is_declared_twice():
    readers = [load_reader(format) for format in FORMATS]
    assert all(isinstance(found, Reader) for found in readers)
    suffixes = [suffix for found in readers for suffix in found.suffixes]
    assert len(suffixes) == len(set(suffixes)) == len(formats_by_suffix())


def test_a_format_resolves_what_the_options_leave_open():
    read = Reader(None, None, text_field="body", own_ids=True)
    assert read.resolve(ReadOptions()) == ReadOptions(text_field="body", id_field=DOCUMENT_ID)
    own = ReadOptions(text_field="content", id_field="key")
    assert read.resolve(own) == own
    assert Reader(None, None).resolve(ReadOptions()) == ReadOptions()


# Records of all formats: clusters and their names, ids, and what is rejected.
def jsonl(rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_a_list_of_texts_is_a_cluster():
    rows = [{"text": ["One.", "Two."]}, {"text": "Alone."}, {"text": ["Only one."]}]
    block = read_all("a.jsonl", data=jsonl(rows))
    second = len(json.dumps(rows[0])) + 1
    third = second + len(json.dumps(rows[1])) + 1
    assert block.texts == ["One.", "Two.", "Alone.", "Only one."]
    assert block.keys == ["0.0", "0.1", str(second), f"{third}.0"]
    assert block.clusters == ["0", "0", None, str(third)]


def test_bad_documents_of_a_cluster_are_rejected_one_by_one():
    rows = [{"text": ["One.", "", None, 7, " ", "half \ud83d", ["x"], "Two."]}, {"text": []}]
    block = read_all("a.jsonl", data=jsonl(rows))
    assert dict(zip(block.keys, block.texts, strict=True)) == {"0.0": "One.", "0.7": "Two."}
    second = str(len(json.dumps(rows[0])) + 1)
    assert reasons(block) == [
        ("0.1", "empty_text"),
        ("0.2", "null_text"),
        ("0.3", "not_a_string"),
        ("0.4", "empty_text"),
        ("0.5", "invalid_utf8"),
        ("0.6", "not_a_string"),
        (second, "empty_cluster"),
    ]
    assert [reject.raw for reject in block.rejects[1:3]] == [b"None", b"7"]
    assert block.read == 9


def test_ids_of_the_users_own():
    rows = [{"text": ["One.", "", "Two."], "key": "k"}, {"text": "Three.", "key": 3}, {"text": ["x", "y"]}]
    block = read_all("a.jsonl", ReadOptions(id_field="key"), data=jsonl(rows))
    assert block.ids == ["k.0", "k.2", "3"]
    assert [reason for _, reason in reasons(block)] == ["empty_text", "missing_id"]


def test_a_field_has_the_title():
    """On one line; a missing, null or blank title is none, and one that is no text rejects its record."""
    rows = [
        {"text": "One.", "title": " Of \n\tships\u00a0and  tides "},
        {"text": "Two."},
        {"text": "Three.", "title": None},
        {"text": "Four.", "title": " \n"},
        {"text": ["Five.", "", "Six."], "title": "Both"},
        {"text": "x", "title": 7},
        {"text": "x", "title": ["a"]},
        {"text": "x", "title": "half \ud83d"},
    ]
    block = read_all("a.jsonl", ReadOptions(title_field="title"), data=jsonl(rows))
    assert block.texts == ["One.", "Two.", "Three.", "Four.", "Five.", "Six."]
    assert block.titles == ["Of ships and tides", None, None, None, "Both", "Both"]
    assert [reason for _, reason in reasons(block)] == ["empty_text", "not_a_string", "not_a_string", "invalid_utf8"]
    assert "'title' is of type int" in block.rejects[1].detail
    assert read_all("a.jsonl", data=jsonl(rows)).titles is None


def test_a_field_names_the_cluster():
    clusters = [("One.", "a"), ("Two.", 7), ("Three.", "a"), (["Four.", "Five."], "b"), ("Six.", None)]
    rejected = [("x", ["a"]), ("x", True), ("x", "")]
    rows = [{"text": text, "topic": topic} for text, topic in (*clusters, *rejected)]
    block = read_all("a.jsonl", ReadOptions(cluster_field="topic"), data=jsonl([*rows, {"text": "Seven."}]))
    assert block.clusters == ["a", "7", "a", "b", "b", None, None]
    assert [reason for _, reason in reasons(block)] == ["missing_cluster"] * 3


# Folders that the real ``datasets`` library saves.
@pytest.fixture
def saved(tmp_path):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    rows = {"text": [f"train {i}" for i in range(30)], "label": [i % 2 for i in range(30)]}
    train = datasets.Dataset.from_dict(rows, features=features)
    test = datasets.Dataset.from_dict({"text": ["test"]})
    folder = str(tmp_path / "saved")
    datasets.DatasetDict(train=train, test=test).save_to_disk(folder, num_shards={"train": 3, "test": 1})
    return folder


def test_a_saved_dataset_dict(saved):
    paths = data_files(files.walk(saved))
    assert [os.path.relpath(path, saved) for path in paths] == [
        "test/data-00000-of-00001.arrow",
        *(f"train/data-0000{i}-of-00003.arrow" for i in range(3)),
    ]
    for options in (ReadOptions(), ReadOptions(format="huggingface")):
        texts = [text for path in paths for text in read_all(path, options).texts]
        assert texts == ["test", *(f"train {i}" for i in range(30))]


def test_caches_beside_the_data_are_left_out(saved):
    before = data_files(files.walk(saved))
    folder = os.path.join(saved, "train")
    datasets.load_from_disk(folder).map(
        lambda row: {"text": row["text"].upper()}, cache_file_name=os.path.join(folder, "cache-1.arrow")
    )
    assert os.path.exists(os.path.join(folder, "cache-1.arrow"))
    assert data_files(files.walk(saved)) == before


def test_damaged_folders(saved):
    os.remove(os.path.join(saved, "train", "data-00001-of-00003.arrow"))
    with pytest.raises(FarspanError, match=r"names .*data-00001-of-00003.arrow, which is missing"):
        data_files(files.walk(saved))
    with open(os.path.join(saved, "test", "state.json"), "w") as file:
        file.write("{}")
    with pytest.raises(FarspanError, match="not the state of a saved dataset"):
        data_files(files.walk(saved))


def test_other_files_are_no_business_of_it(tmp_path):
    paths = [str(tmp_path / name) for name in ("a.jsonl", "data-1.arrow", "state.json")]
    assert data_files(paths) == paths
