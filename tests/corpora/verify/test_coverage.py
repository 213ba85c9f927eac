from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.verify.coverage import gaps


def columns(parts):
    return (np.array(column) for column in zip(*parts, strict=True))


@st.composite
def whole_documents(draw):
    """(document, offset, size, length) of documents that are cut anew each of the times they occur, shuffled."""
    parts = []
    for document in range(draw(st.integers(1, 5))):
        length = draw(st.integers(1, 40))
        for _ in range(draw(st.integers(1, 3))):
            edges = sorted({0, length, *draw(st.lists(st.integers(1, length), max_size=3))})
            parts += [(document, a, b - a, length) for a, b in pairwise(edges)]
    return draw(st.permutations(parts))


@given(whole_documents())
def test_whole_documents_have_no_gap(parts):
    assert gaps(*columns(parts)) == []


@given(whole_documents(), st.data())
def test_a_lost_part_shows(parts, data):
    lost = data.draw(st.sampled_from([part for part in parts if part[2] < part[3]] or [None]))
    if lost is None:
        return
    parts = list(parts)
    parts.remove(lost)
    found = gaps(*columns(parts)) if parts else [(0, "")]
    inside = lost[1] > 0 or lost[1] + lost[2] < lost[3]
    assert bool(found) == inside


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ([(0, 0, 5, 10)], "ends at token 5"),
        ([(0, 5, 5, 10)], "continues at token 5"),
        ([(0, 0, 11, 10)], "tokens 0 to 11 of a document of 10"),
        ([(0, 0, 10, 10), (0, 0, 11, 11)], "another part gives another length"),
        ([(0, 0, 5, 10), (0, 6, 4, 10)], "at token"),
    ],
)
def test_faults_are_named(parts, what):
    (fault,) = gaps(*columns(parts))
    assert what in fault[1]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(1, 12), st.data())
def test_windows_with_an_overlap_and_the_cuts_of_what_they_leave(lengths, window, data):
    stride = data.draw(st.integers(1, window))
    parts = []
    for document, length in enumerate(lengths):
        starts = range(0, max(length - window + stride, 1), stride)
        parts += [(document, start, min(window, length - start), length) for start in starts]
        last = parts.pop()
        edges = sorted({0, last[2], *data.draw(st.lists(st.integers(0, last[2]), max_size=2))})
        parts += [(document, last[1] + a, b - a, length) for a, b in pairwise(edges)]
    parts = data.draw(st.permutations(parts))
    assert gaps(*columns(parts), overlap=window - stride) == []


def test_overlap_and_allowed_cuts():
    windows = [(0, 0, 8, 20), (0, 6, 8, 20), (0, 12, 8, 20)]
    assert gaps(*columns(windows), overlap=2) == []
    assert gaps(*columns(windows))
    assert gaps(*columns(windows[:2]), overlap=2)
    assert gaps(*columns(windows[:2]), overlap=2, may_be_cut=True) == []
    assert gaps(*columns(windows[1:]), overlap=2, may_be_cut=True)
