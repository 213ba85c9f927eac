"""Options of reading, ranges and blocks."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.readers.records import CrashedReader, DamagedFile, DamagedStream, PairFields, ReadOptions, group
from corpora.storage.stores.local_disk import DanglingLink, NotAFile


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "--format csv: unknown; give one of arrow, books3"),
        ({"max_record_bytes": 0}, "--max-record-bytes 0"),
        ({"text_field": ""}, "--text-field"),
        ({"id_field": ""}, "--id-field"),
        ({"cluster_field": ""}, "--cluster-field"),
        ({"title_field": ""}, "--title-field"),
        ({"min_characters": -1}, "--min-characters -1"),
        ({"min_tokens": -1}, "--min-tokens -1"),
        ({"preprocess": ("join-lines", "shout")}, "--preprocess shout: unknown; give names among strip-gutenberg"),
        ({"separator": "==="}, "--separator '===': .* for --format stories only"),
        ({"format": "stories", "separator": " "}, "--separator ' '"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(FarspanError, match=message):
        ReadOptions(**options)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 100))
def test_pieces_are_grouped_up_to_the_target(sizes, target):
    cuts = group(sizes, target)
    assert [cuts[0].start, *(cut.stop for cut in cuts)] == [*(cut.start for cut in cuts), len(sizes)]
    assert [cut.bytes for cut in cuts] == [sum(sizes[cut.start : cut.stop]) for cut in cuts]
    assert all(cut.bytes <= target or cut.stop - cut.start == 1 for cut in cuts)
    joined = [left.bytes + sizes[right.start] for left, right in pairwise(cuts)]
    assert all(size > target for size in joined), "a group ends only where the next piece does not fit"


def test_options_survive_json():
    options = ReadOptions(format="pairs", preprocess=("join-lines",), id_field="key", pairs=PairFields(query_field="q"))
    again = ReadOptions(**json.loads(json.dumps(asdict(options))))
    assert again == options
    assert again.named_fields == [("--id-field", "key")]


@pytest.mark.parametrize(
    ("error", "reason", "lost"),
    [
        (EOFError(), "truncated_file", None),
        (DanglingLink("a"), "dangling_link", None),
        (NotAFile("a"), "not_a_file", None),
        (CrashedReader("SIGSEGV"), "crashed_reader", None),
        (DamagedStream("no checksum", 70), "unreadable_file", 70),
        (ValueError("x"), "unreadable_file", None),
    ],
)
def test_the_reason_of_damage_is_that_of_its_error(error, reason, lost):
    damaged = DamagedFile(error, 7, b"raw")
    assert (damaged.reason, damaged.lost, damaged.key, damaged.raw) == (reason, lost, "7", b"raw")
    assert str(damaged).startswith(type(error).__name__)
