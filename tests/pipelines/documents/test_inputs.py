"""Inputs: found, named, cut into ranges and grouped."""

import json
import os
import subprocess
import sys
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.readers import Range, ReadOptions
from corpora.readers.selection import read_records
from corpora.storage.manifest import Receipt
from pipelines.documents.inputs import Input, leave_out_output
from pipelines.documents.ranges import CutFile, RawFiles, group_ranges
from tests.artefacts import all_rows
from tests.pipelines.documents.jobs import build, rejects


# Inputs as they are given on the command line: names, roots, and the files that are read.
def test_an_input_is_named_and_rooted(raw):
    whole = Input.parse(raw)
    assert (whole.source, whole.relative(whole.paths[0])) == (os.path.basename(raw), "a.jsonl")
    named = Input.parse(f"c4={raw}/*.json.gz")
    assert (named.source, [named.relative(path) for path in named.paths]) == ("c4", ["c.json.gz"])
    one = Input.parse(f"{raw}/a.jsonl")
    assert (one.source, one.relative(one.paths[0])) == ("a", "a.jsonl")
    with pytest.raises(FarspanError, match="leave ':' out"):
        Input.parse(f"a:b={raw}")


def test_another_jobs_output_inside_the_folder_of_the_input_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "manifest.json").write_text("{}")  # of somebody else
    assert len(leave_out_output([Input.parse(str(tmp_path))], "/out")[0].paths) == 2
    (tmp_path / "made" / "shards").mkdir(parents=True)
    for name in ("manifest.json", "README.md", "shards/part-00000-of-00001.arrow"):
        (tmp_path / "made" / name).touch()
    with pytest.raises(FarspanError, match=f"{tmp_path}/made was written by a farspan job; keep outputs out"):
        leave_out_output([Input.parse(str(tmp_path))], "/out")
    assert len(leave_out_output([Input.parse(str(tmp_path))], f"{tmp_path}/made")[0].paths) == 2  # of an earlier run
    assert len(Input.parse(f"{tmp_path}/*.jsonl").paths) == 1


def test_what_publishers_put_beside_the_records_is_left_out_of_a_folder(tmp_path):
    names = {
        "pg19": (["train/1.txt", "train/2.txt"], ["README.md", "metadata.csv"]),
        "mediasum": (["news_dialogue.json"], ["train_val_test_split.json"]),
        "multi-news": (["train.src", "train.src.cleaned"], ["train.tgt", "train.tgt.cleaned"]),
        "opensubtitles": (["en/1990/1/2.xml"], ["INFO", "LICENSE"]),
    }
    for format, (data, beside) in names.items():
        for name in [*data, *beside]:
            (tmp_path / format / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / format / name).touch()
        item = Input.parse(str(tmp_path / format), ReadOptions(format=format))
        assert [item.relative(path) for path in item.paths] == data
        one = Input.parse(str(tmp_path / format / beside[-1]), ReadOptions(format=format))
        assert len(one.paths) == 1  # what is named is read
    pg19 = tmp_path / "pg19"
    assert len(Input.parse(str(pg19)).paths) == 3  # without README.md, the card of a data set
    (pg19 / "metadata.csv").rename(pg19 / "metadata.rst")
    assert len(Input.parse(str(pg19)).paths) == 4  # a folder of plain text has all of it


def test_names_that_look_like_globs_or_assignments_and_hidden_folders(raw, tmp_path, capsys):
    folder = tmp_path / "x=y [1]"
    (folder / ".cache").mkdir(parents=True)
    for name in ("ä é.jsonl", ".cache/a.metadata", "_SUCCESS"):
        (folder / name).write_text('{"text": "One."}\n')
    assert [os.path.basename(path) for path in Input.parse(str(folder)).paths] == ["ä é.jsonl"]
    assert "2 hidden files, such as" in capsys.readouterr().err
    assert Input.parse(f"{folder}/ä é.jsonl").source == "ä é"
    assert [os.path.basename(path) for path in Input.parse(f"{folder}/_SUCCESS").paths] == ["_SUCCESS"]  # it is named
    (folder / "ä é.jsonl").unlink()
    with pytest.raises(FarspanError, match=r"all of its 2 files, such as .* are hidden, because a name begins with"):
        Input.parse(str(folder))


LISTED = """
import sys
from corpora.readers import ReadOptions
from pipelines.documents.inputs import Input
assert sys.getfilesystemencoding() == sys.argv[2], sys.getfilesystemencoding()
item = Input.parse(sys.argv[1], ReadOptions())
sys.stdout.buffer.write("\\n".join([item.source, *map(item.relative, item.paths)]).encode())
"""


@pytest.mark.parametrize("encoding", ["utf-8", "iso8859-1"])
def test_ids_are_the_bytes_of_names_in_any_locale(tmp_path, encoding):
    folder = tmp_path / "caf\u00e9"
    folder.mkdir()
    for name in ("\u00e4 \u00e9.txt", "\u4e16.txt"):
        (folder / name).write_text("One.")
    environment = {**os.environ, "PYTHONUTF8": "1"}
    if encoding != "utf-8":
        make = ["localedef", "-i", "POSIX", "-f", "ISO-8859-1", "-c", str(tmp_path / "xx_XX.ISO-8859-1")]
        made = subprocess.run(make, capture_output=True, check=False)
        if not (tmp_path / "xx_XX.ISO-8859-1").is_dir():
            pytest.skip(f"no Latin-1 locale can be made here: {made.stderr.decode()}")
        environment |= {"PYTHONUTF8": "0", "LOCPATH": str(tmp_path), "LC_ALL": "xx_XX.ISO-8859-1"}
    listing = [sys.executable, "-c", LISTED, f"n\u00e4me={folder}", encoding]
    told = subprocess.check_output(listing, env=environment)
    assert told.decode().split("\n") == ["n\u00e4me", "\u00e4 \u00e9.txt", "\u4e16.txt"]


@pytest.mark.parametrize("format", ["gov-report", "pairs:gov-report"])
def test_a_folder_without_files_of_the_data_set_is_refused_with_one_of_its_files(tmp_path, format):
    (tmp_path / "gao").mkdir()
    (tmp_path / "gao" / "GAO-1.json").write_text("{}")
    with pytest.raises(FarspanError, match=r"gov-report reads none of its 1 file, such as .*GAO-1\.json; give"):
        Input.parse(f"gov={tmp_path}/gao", ReadOptions(format=format))


def test_a_data_set_of_datasets_is_an_input(tmp_path, tokenizer):
    (tmp_path / "en").mkdir()
    for shard in range(2):
        (tmp_path / "en" / f"train-{shard}.jsonl").write_text(f'{{"text": "One {shard}."}}\n{{"text": ""}}\n')
    item = Input.parse(f"books=hf:{tmp_path}/en")
    assert (item.source, [item.relative(path) for path in item.paths]) == ("books", ["default/train"])
    manifest = build(f"books=hf:{tmp_path}/en", tmp_path / "docs", tokenizer, error_budget=1, task_bytes=1)
    size = 2 * (tmp_path / "en" / "train-0.jsonl").stat().st_size
    assert manifest.inputs == ({"path": "books:default/train", "bytes": size},)
    assert len(manifest.shards) == 2
    ids = [row["document_id"] for row in all_rows(tmp_path / "docs")]
    assert ids == ["books:default/train:0.0", "books:default/train:1.0"]
    assert len(rejects(tmp_path / "docs")) == 2


# Files cut into ranges, and ranges assigned to tasks: nothing lost, nothing twice, no task too large.
sizes = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=5), max_size=6)


def cut_of(files_of_sizes):
    """Files whose ranges have the given numbers of bytes."""
    made = []
    for number, ranges in enumerate(files_of_sizes):
        edges = pairwise(accumulate(ranges, initial=0))
        pieces = [Range(f"/f{number}", "jsonl", *edge, edge[1] - edge[0], sum(ranges)) for edge in edges]
        made.append(CutFile("s", f"f{number}", pieces))
    return made


@given(cut=sizes.map(cut_of), target=st.integers(1, 80), most=st.integers(1, 4))
def test_groups_are_all_ranges_in_order_and_as_large_as_they_may_be(cut, target, most):
    groups = list(group_ranges(cut, target, most))
    every = [(file.source, file.name, piece) for file in cut for piece in file.ranges]
    assert [piece for group in groups for piece in group] == every
    assert all(1 <= len(group) <= most for group in groups)
    size_of = [sum(piece.bytes for _, _, piece in group) for group in groups]
    assert all(size <= target or len(group) == 1 for group, size in zip(groups, size_of, strict=True))
    for number, following in enumerate(groups[1:]):  # the next piece had no room
        assert len(groups[number]) == most or size_of[number] + following[0][2].bytes > target


def test_a_task_carries_its_pieces_as_plain_values():
    cut = cut_of([[5000, 7000]])
    raw = RawFiles((), {}, cut, list(group_ranges(cut, 20_000, 9)))
    (task,) = raw.read_by("read", lambda task, report: Receipt(task.name), ["shard"]).tasks
    ranges = task.payload["ranges"]
    assert json.loads(json.dumps(ranges)) == [list(piece) for piece in ranges]
    assert [Range(**values) for _, _, values in ranges] == [piece for _, _, piece in raw.groups[0]]
    assert (task.payload["shard"], task.units) == ("shard", 12_000 >> 10)


@pytest.mark.parametrize("target", [1, 40, 1 << 20])
def test_files_are_cut_into_ranges_that_hold_every_record_once(tmp_path, target):
    lines = [json.dumps({"text": f"Text {number}."}) for number in range(30)]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.jsonl").write_text("\n".join(lines[:20]))
    (tmp_path / "raw/b.jsonl").write_text("\n".join(lines[20:]) + "\n")
    inputs, read = (Input.parse(f"raw={tmp_path / 'raw'}", ReadOptions()),), ReadOptions()
    made = RawFiles.plan(inputs, "/out", target, 9)
    cut = made.cut
    assert [(file.source, file.name) for file in cut] == [("raw", "a.jsonl"), ("raw", "b.jsonl")]
    assert (max(len(file.ranges) for file in cut) > 1) == (target < 1 << 20)
    blocks = [block for file in cut for piece in file.ranges for block in read_records(piece, read)]
    assert [text for block in blocks for text in block.texts] == [f"Text {number}." for number in range(30)]
    total = sum(path.stat().st_size for path in (tmp_path / "raw").iterdir())
    assert [entry["path"] for entry in made.entries] == ["raw:a.jsonl", "raw:b.jsonl"]
    assert sum(entry["bytes"] for entry in made.entries) == total
    assert made.work_bytes == total + (4 << 10) * sum(len(file.ranges) for file in cut)  # a file takes time to open
