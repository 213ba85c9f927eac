"""Ranges, and reasons of damage."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.readers.records import CrashedReader, DamagedFile, DamagedStream, group
from corpora.storage.stores.local_disk import DanglingLink, NotAFile


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 100))
def test_pieces_are_grouped_up_to_the_target(sizes, target):
    cuts = group(sizes, target)
    assert [cuts[0].start, *(cut.stop for cut in cuts)] == [*(cut.start for cut in cuts), len(sizes)]
    assert [cut.bytes for cut in cuts] == [sum(sizes[cut.start : cut.stop]) for cut in cuts]
    assert all(cut.bytes <= target or cut.stop - cut.start == 1 for cut in cuts)
    joined = [left.bytes + sizes[right.start] for left, right in pairwise(cuts)]
    assert all(size > target for size in joined), "a group ends only where the next piece does not fit"


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
