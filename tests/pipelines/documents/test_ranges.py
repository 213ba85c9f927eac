"""Files cut into ranges, and ranges assigned to tasks: nothing lost, nothing twice, no task too large."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.readers import Range, ReadOptions
from corpora.readers.selection import read_records
from corpora.storage import files
from pipelines.documents.inputs import Input
from pipelines.documents.ranges import CutFile, Group, cut_files, group_ranges, list_inputs, work_bytes

sizes = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=5), max_size=6)


def cut_of(files_of_sizes):
    """Files whose ranges have the given numbers of bytes."""
    made = []
    for number, ranges in enumerate(files_of_sizes):
        starts = [sum(ranges[:place]) for place in range(len(ranges))]
        pieces = [
            Range(f"/f{number}", "jsonl", start, start + size, size, sum(ranges))
            for start, size in zip(starts, ranges, strict=True)
        ]
        made.append(CutFile("s", f"f{number}", pieces))
    return made


@given(cut=sizes.map(cut_of), target=st.integers(1, 80), most=st.integers(1, 4))
def test_groups_are_all_ranges_in_order_and_as_large_as_they_may_be(cut, target, most):
    groups = list(group_ranges(cut, target, most))
    every = [(file.source, file.name, piece) for file in cut for piece in file.ranges]
    assert [piece for group in groups for piece in group.pieces] == every
    assert all(1 <= len(group.pieces) <= most for group in groups)
    assert all(group.bytes <= target or len(group.pieces) == 1 for group in groups)
    for group, following in pairwise(groups):  # the next piece had no room
        assert len(group.pieces) == most or group.bytes + following.pieces[0][2].bytes > target


def test_a_task_carries_its_pieces_as_plain_values():
    (group,) = group_ranges(cut_of([[5, 7]]), 100, 9)
    assert json.loads(json.dumps(group.payload)) == [list(piece) for piece in group.payload]
    assert [Range(**values) for _, _, values in group.payload] == [piece for _, _, piece in group.pieces]
    assert group.bytes == 12
    assert Group([]).bytes == 0


@pytest.mark.parametrize("target", [1, 40, 1 << 20])
def test_files_are_cut_into_ranges_that_hold_every_record_once(tmp_path, target):
    lines = [json.dumps({"text": f"Text {number}."}) for number in range(30)]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.jsonl").write_text("\n".join(lines[:20]))
    (tmp_path / "raw/b.jsonl").write_text("\n".join(lines[20:]) + "\n")
    inputs, read = (Input.parse(f"raw={tmp_path / 'raw'}", ReadOptions()),), ReadOptions()
    cut = cut_files(inputs, {"raw": read}, target)
    assert [(file.source, file.name) for file in cut] == [("raw", "a.jsonl"), ("raw", "b.jsonl")]
    assert (max(len(file.ranges) for file in cut) > 1) == (target < 1 << 20)
    texts = [
        text
        for file in cut
        for piece in file.ranges
        for block in read_records(piece, files, read)
        for text in block.texts
    ]
    assert texts == [f"Text {number}." for number in range(30)]
    total = sum(path.stat().st_size for path in (tmp_path / "raw").iterdir())
    assert [entry["path"] for entry in list_inputs(cut)] == ["raw:a.jsonl", "raw:b.jsonl"]
    assert sum(entry["bytes"] for entry in list_inputs(cut)) == total
    assert work_bytes(cut) == total + (4 << 10) * sum(len(file.ranges) for file in cut)  # a file takes time to open
