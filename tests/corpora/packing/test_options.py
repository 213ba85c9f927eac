"""Options of packing: what fits, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.packing.options import Packing, RelatedRows


def test_a_document_longer_than_every_sequence_is_kept_only_when_it_may_be_split():
    assert Packing(sequence_length=20).keeps(np.array([100]))[0]
    assert not Packing(sequence_length=20, split_documents=False).keeps(np.array([100]))[0]
    assert Packing(sequence_length=20, split_documents=False).keeps(np.array([17]))[0]


@pytest.mark.parametrize(
    "options",
    [
        {"sequence_length": 3},
        {"sequence_length": 0},
        {"sequence_length": 2**32},
        {"sequence_length": 100, "room_per_document": -1},
        {"sequence_length": 100, "min_document_tokens": 0},
    ],
)
def test_impossible_packing_is_refused_with_the_field(options):
    with pytest.raises(FarspanError, match=r"sequence_length|room_per_document|min_document_tokens"):
        Packing(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_documents": 0}, "--min-documents 0: must be at least 1"),
        ({"min_documents": 4, "max_documents": 3}, "--max-documents 3: is below --min-documents 4"),
    ],
)
def test_impossible_division_is_refused_with_the_flag(options, message):
    with pytest.raises(FarspanError, match=message):
        RelatedRows(**options)


@pytest.mark.parametrize(
    ("options", "length", "documents"),
    [({}, 4 * 128 + 2, 4), ({}, 100, 2), ({"max_documents": 9}, 20, 9), ({"min_documents": 7}, 100, 7)],
)
def test_the_largest_number_of_documents(options, length, documents):
    """As many as have 128 positions each, or as given; each needs a position for text beside its separator."""
    rows = RelatedRows(**options)
    assert rows.largest(Packing(sequence_length=length)) == documents
    with pytest.raises(FarspanError, match=rf"--max-documents {documents}: a row of \d+ positions has no room"):
        replace(rows, max_documents=documents).largest(Packing(sequence_length=2 * documents + 1))
