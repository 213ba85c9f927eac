"""Options of ``farspan pairs``."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.readers.options import PAIRS_OF
from pipelines.pairs.options import Pairs, RawPairs
from tests.pipelines.typed import typed

NEEDED = {"inputs": (), "documents": "d", "output": "o"}


def test_the_data_set_of_pairs_is_the_one_of_their_documents():
    read = typed(RawPairs, "--input x --format scrolls --subset qasper").read
    assert (read.format, read.subset) == (f"{PAIRS_OF}scrolls", "qasper")
    plain = typed(RawPairs, "--input x --text-field body --id-field key --max-record-bytes 9").read
    assert (plain.text_field, plain.id_field, plain.max_record_bytes) == ("body", "key", 9)
    assert plain.format == f"{PAIRS_OF}pairs"


@pytest.mark.parametrize(
    ("name", "said"),
    [("scrols", r"did you mean 'scrolls'\?"), ("jsonl", "JSON lines and Parquet are --format pairs; give one of")],
)
def test_a_data_set_that_has_no_pairs_is_named_with_the_nearest(name, said):
    with pytest.raises(FarspanError, match=rf"--format {name}: no data set of pairs.*{said}"):
        typed(RawPairs, f"--input x --format {name}").read  # noqa: B018


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"validation": 0.6, "test": 0.4}, "give shares of documents, together less than 1"),
        ({"validation": -0.1}, "--validation -0.1"),
        ({"test": float("nan")}, "--test nan"),
        ({"task_bytes": 0}, "--task-bytes 0: give a positive number"),
        ({"task_files": -1}, "--task-files -1"),
    ],
)
def test_shares_and_sizes_out_of_range_are_refused(options, said):
    with pytest.raises(FarspanError, match=said):
        Pairs(**NEEDED, **options)


def test_options_are_typed():
    line = "--documents d --output o --split draw --validation 0.2 --test 0 --seed 3"
    assert typed(Pairs, line, inputs=()) == Pairs(**NEEDED, split="draw", validation=0.2, test=0.0, seed=3)
