"""Data sets that ``datasets`` opens, read by their own shards: local folders and builders, without a network."""

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.load_dataset import Split, find_split, is_data_set, parse_path
from corpora.readers.selection import check_fields, plan_ranges
from tests.corpora.readers import read_all, reasons

TEXTS = [f"Text {number} of the harbour." for number in range(12)]


@pytest.fixture(autouse=True)
def without_network(monkeypatch):
    import datasets.config
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


@pytest.fixture
def folder(tmp_path):
    """12 records in three files of a training split, and two in another."""
    (tmp_path / "books" / "data").mkdir(parents=True)
    for shard in range(3):
        rows = [{"text": text, "name": f"n{i}"} for i, text in enumerate(TEXTS)][shard * 4 : shard * 4 + 4]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "books" / "data" / f"train-{shard}.jsonl").write_text(lines)
    (tmp_path / "books" / "data" / "test-0.jsonl").write_text('{"text": "One.", "name": "a"}\n')
    return tmp_path / "books"


def test_a_folder_is_read_by_its_shards_whatever_the_tasks(folder):
    split = find_split(f"hf:{folder}::train")
    assert (split.config, split.split, split.source) == ("default", "train", "books")
    whole = read_all(split.path)
    assert whole.texts == TEXTS
    assert whole.keys == [f"{shard}.{row}" for shard in range(3) for row in range(4)]
    pieces = plan_ranges(split.path, ReadOptions(), 1)
    assert [(piece.start, piece.stop) for piece in pieces] == [(0, 1), (1, 2), (2, 3)]
    sizes = [(folder / "data" / f"train-{shard}.jsonl").stat().st_size for shard in range(3)]
    assert [piece.bytes for piece in pieces] == sizes
    assert {piece.size for piece in pieces} == {sum(sizes)}
    alone = read_all(split.path, ReadOptions(id_field="name", title_field="name"), target_bytes=1)
    assert (alone.texts, alone.keys) == (whole.texts, whole.keys)
    assert alone.ids == alone.titles == [f"n{number}" for number in range(12)]


def test_a_folder_does_not_hide_a_data_set_or_a_builder_of_its_name(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "csv").mkdir()
    (tmp_path / "a.csv").write_text("text\nOne.\n")
    assert find_split("hf:csv:a.csv").name == "csv"
    assert find_split("hf:./books::train").name == str(folder)
    with pytest.raises(FarspanError, match=r"and a folder here; give hf:\./books for the folder"):
        find_split("hf:books::train")


def test_builders_of_datasets_read_files_of_their_kind(tmp_path):
    (tmp_path / "a.csv").write_text('text,n\n"One, two.",1\nThree.,2\n')
    split = find_split(f"hf:csv:{tmp_path}/*.csv")
    assert (split.config, split.split, split.source) == ("default", "train", tmp_path.name)
    assert read_all(split.path).texts == ["One, two.", "Three."]
    with pytest.raises(FarspanError, match="name the files too"):
        find_split("hf:csv")


def test_parquet_reads_the_wanted_columns_only(tmp_path):
    pq.write_table(pa.table({"text": TEXTS, "big": [b"x"] * 12}), tmp_path / "train.parquet", row_group_size=5)
    path = find_split(f"hf:{tmp_path}").path
    check_fields(path, ReadOptions())
    assert read_all(path).texts == TEXTS
    with pytest.raises(FarspanError, match=r"no field 'body' .*its fields: big, text; give --text-field text"):
        check_fields(path, ReadOptions(text_field="body"))


def test_bad_records_and_damaged_shards_are_rejects_of_their_own(folder):
    (folder / "data" / "train-1.jsonl").write_text('{"text": null, "name": "x"}\n{"text": "Good.", "name": "y"}\n')
    path = find_split(f"hf:{folder}::train").path
    block = read_all(path, target_bytes=1)
    assert reasons(block) == [("1.0", "null_text")]
    assert block.texts == [*TEXTS[:4], "Good.", *TEXTS[8:]]
    (folder / "data" / "train-1.jsonl").write_text('{"text": "Good.", "name": "y"}\n{"text": \n')
    block = read_all(path)
    assert reasons(block) == [("1.0", "unreadable_file")]
    assert (block.texts, block.damaged) == ([*TEXTS[:4], *TEXTS[8:]], 1)
    assert block.lost == (folder / "data" / "train-1.jsonl").stat().st_size


def test_a_data_set_that_changes_while_it_is_read_is_an_error(folder):
    path = find_split(f"hf:{folder}::train").path
    (folder / "data" / "train-3.jsonl").write_text('{"text": "More.", "name": "z"}\n')
    changed = plan_ranges(path, ReadOptions(), 1 << 30)[0]
    (folder / "data" / "train-3.jsonl").unlink()
    from corpora.readers.selection import read_records

    with pytest.raises(FarspanError, match="bytes when the job began and has"):
        list(read_records(changed, ReadOptions()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hf:{folder}", "name one of its splits: train, test; as in hf:NAME:CONFIG:train"),
        ("hf:{folder}::tran", r"no split 'tran' \(did you mean 'train'\?\); its splits: train, test"),
        ("hf:{folder}:en:train", "BuilderConfig 'en' not found"),
        ("hf:nobody/nothing", "hub cannot be reached; run the command again, or download"),
    ],
)
def test_what_cannot_be_opened_is_one_line_with_a_cure(folder, text, message):
    with pytest.raises(FarspanError, match=message) as raised:
        find_split(text.format(folder=folder))
    assert "\n" not in str(raised.value)


def test_code_of_a_data_set_never_runs(tmp_path):
    folder = tmp_path / "tricky"
    folder.mkdir()
    (folder / "tricky.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with pytest.raises(FarspanError):
        find_split(f"hf:{folder}")
    assert not (tmp_path / "ran").exists()


def test_a_format_is_refused(folder):
    path = find_split(f"hf:{folder}::train").path
    with pytest.raises(FarspanError, match="leave --format lines out"):
        plan_ranges(path, ReadOptions(format="lines"), 1)


def test_paths_are_read_back():
    for split in (
        Split("allenai/c4", "", "0" * 40, "en", "train"),
        Split("/data/books", "", "", "default", "test"),
        Split("json", "s3://bucket/*.json", "", "default", "train+test"),
    ):
        assert parse_path(split.path) == split
        assert is_data_set(split.path)
        assert split.path[len(split.root) :] == f"{split.config}/{split.split}"
    assert not is_data_set("hf://datasets/a/b")


def test_without_datasets_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['datasets'] = None\n"
        "from corpora.readers.load_dataset import find_split\n"
        "try: find_split('hf:a/b')\n"
        "except Exception as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "--input hf:a/b: needs datasets; pip install 'farspan[datasets]'\n"
