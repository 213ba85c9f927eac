"""Rows of documents and of a corpus that break the contract, each kind of damage done to a sound artefact."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.storage.manifest_file import read_manifest, write_manifest
from corpora.storage.ragged import Ragged
from corpora.verify.artefact import verify
from corpora.verify.rows import ascending, gaps
from tests.corpora.verify.test_artefact import column, rewrite


def test_a_lost_part_is_a_gap_in_its_document(corpus):
    def forget(table):
        rows = table.column("document_offsets").to_pylist()
        continued = next(i for i, offsets in enumerate(rows) if offsets[0])
        rows[continued][0] += 1
        return column(table, "document_offsets", rows)

    rewrite(corpus, forget)
    assert any("part of document" in problem for problem in verify(corpus))


def test_rows_that_break_the_contract(corpus):
    def break_rows(table):
        table = column(table, "tokens", [[70] * len(row) for row in table.column("tokens").to_pylist()])
        starts = table.column("sentence_starts").to_pylist()
        starts[0] = [0, 5, 5]
        starts[1] = [1, 2]
        starts[2] = [0, 100_000]
        return column(table, "sentence_starts", starts)

    rewrite(corpus, break_rows)
    problems = [problem for problem in verify(corpus) if "sentence_starts do not ascend" in problem]
    assert len(problems) == 3


def test_ids_twice_and_tokens_outside_of_the_vocabulary(corpus):
    def break_rows(table):
        ids = table.column("sequence_id").to_pylist()
        tokens = table.column("tokens").to_pylist()
        tokens[1][0] = 60_000
        return column(column(table, "sequence_id", [ids[0]] * 2 + ids[2:]), "tokens", tokens)

    rewrite(corpus, break_rows)
    problems = "\n".join(verify(corpus))
    assert "occurs twice" in problems
    assert "are not all in the vocabulary" in problems


def test_special_tokens_are_no_text(corpus):
    def break_rows(table):
        tokens = table.column("tokens").to_pylist()
        tokens[2][1], tokens[2][2], tokens[3][0] = 2, 3, 1  # </s>, <unk>, which a text may hold, and <pad>
        return column(table, "tokens", tokens)

    rewrite(corpus, break_rows)
    problems = [problem for problem in verify(corpus) if "stored as text" in problem]
    assert len(problems) == 1
    assert "row 2: <eos> (id 2) is stored as text, as are 1 more" in problems[0]


def test_a_sequence_longer_than_promised(corpus):
    manifest = read_manifest(corpus)
    manifest.config["sequence_length"] = 64
    write_manifest(corpus, manifest)
    assert any("exceed the sequence length" in problem for problem in verify(corpus))


def by_hand(rows: list[list[int]], lengths: list[int]) -> list[int]:
    """Rows whose starts do not ascend from 0 inside the row; a row with tokens has a start."""
    found = []
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        sound = row == sorted(set(row)) and set(row) <= {*range(length)} and row[:1] == ([0] if length else [])
        found += [] if sound else [number]
    return found


@settings(max_examples=150)
@given(st.lists(st.tuples(st.lists(st.integers(-1, 5), max_size=4), st.integers(0, 6)), max_size=5))
def test_starts_ascend_from_0_inside_the_row(drawn):
    rows, lengths = [row for row, _ in drawn], [length for _, length in drawn]
    found = list(ascending("here", "starts", Ragged.from_rows(rows, np.int32), np.array(lengths, np.int64)))
    expected = [f"here row {number}: starts do not ascend from 0 inside the row" for number in by_hand(rows, lengths)]
    assert found == expected


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
