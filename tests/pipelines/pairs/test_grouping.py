"""Pairs as arrays: options, records of one pair, groups of documents, drawn splits."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.options import PAIRS_OF
from corpora.readers.raw_tasks import RawPair
from corpora.schemas.pairs import SPLITS
from corpora.storage.manifest_file import read_manifest
from corpora.storage.ragged import Ragged
from pipelines.pairs.merge import document_groups, draw_splits, first_of_equal, in_several_splits
from pipelines.pairs.options import Pairs, RawPairs
from pipelines.pairs.tokenize import ReadPair, ReadPairs
from tests.artefacts import all_rows
from tests.pipelines.pairs.raw import build
from tests.pipelines.typed import typed


# Merging and drawing as functions of arrays, against plain restatements.
@pytest.mark.parametrize("seed", range(20))
def test_records_join_the_first_of_their_name_unless_they_differ(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(0, 40))
    names = rng.integers(0, 4, (size, 2)).astype(np.uint64)
    contents = rng.integers(0, 2, size).astype(np.uint64)
    expected = []
    for row in range(size):
        first = next(other for other in range(size) if (names[other] == names[row]).all())
        expected.append(first if contents[first] == contents[row] else -1)
    assert first_of_equal(names, contents).tolist() == expected


def _lists(rng: np.random.Generator, pairs: int, documents: int) -> Ragged:
    rows = [rng.choice(documents, rng.integers(1, 4), replace=False) for _ in range(pairs)]
    return Ragged.from_rows(rows, np.int64)


def _draw(lists: Ragged, seed: int, **shares: float) -> list[str]:
    names = [f"mine:{row}" for row in lists.values.tolist()]
    return draw_splits(lists, names, seed, **{"validation": 0.3, "test": 0.3, **shares}).to_pylist()


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_connected_components(seed):
    rng = np.random.default_rng(seed)
    chain = [[row, row + 1] for row in rng.permutation(60).tolist()]
    for lists in (_lists(rng, 40, 70), Ragged.from_rows(chain, np.int64)):
        distinct, groups = document_groups(lists)
        size = int(lists.values.max()) + 1
        edges = [(row[0], other) for row in map(lists.__getitem__, range(len(lists))) for other in row]
        matrix = coo_array((np.ones(len(edges)), tuple(zip(*edges, strict=True))), shape=(size, size))
        expected = connected_components(matrix, directed=False)[1][distinct]
        assert (distinct == np.unique(lists.values)).all()
        assert ((groups[:, None] == groups) == (expected[:, None] == expected)).all()


@pytest.mark.parametrize("seed", range(20))
def test_no_document_is_drawn_into_two_splits_and_the_order_of_pairs_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    lists = _lists(rng, 30, 80)
    splits = _draw(lists, seed)
    assert in_several_splits(lists, np.array(splits)) == (len(np.unique(lists.values)), 0)
    order = rng.permutation(30)
    assert _draw(lists.take(order), seed) == [splits[row] for row in order]


def test_shares_are_met_and_further_pairs_of_other_documents_change_nothing():
    lists = Ragged(np.arange(4000), np.arange(4001))
    splits = np.array(_draw(lists, 1, validation=0.2, test=0.1))
    assert [np.mean(splits == split) for split in SPLITS] == pytest.approx([0.7, 0.2, 0.1], abs=0.03)
    assert _draw(lists.take(np.arange(100)), 1, validation=0.2, test=0.1) == splits[:100].tolist()
    assert set(_draw(lists, 1, validation=0.0, test=0.0)) == {"train"}


def test_documents_in_several_splits_are_counted():
    lists = Ragged.from_rows([[0, 1], [1], [2], [2]], np.int64)
    assert in_several_splits(lists, np.array(["train", "test", "test", "test"])) == (3, 1)
    assert in_several_splits(lists.take(np.arange(0)), np.array([])) == (0, 0)


# Pairs drawn into splits after they are merged.
def test_a_drawn_split_parts_documents(scrolls, documents, tmp_path):
    shares: dict[str, Any] = {"split": "draw", "validation": 0.2, "test": 0.2, "error_budget": 0.5}
    build(scrolls, documents, str(tmp_path / "a"), **shares)
    rows = all_rows(tmp_path / "a", "farspan.pairs")
    splits: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        splits[row["document_ids"][0]].add(row["split"])
    assert all(len(one) == 1 for one in splits.values())
    assert len(set.union(*splits.values())) > 1
    reasons = read_manifest(str(tmp_path / "a")).rejects
    assert reasons == {"no_reference": 30}, "the test records of the data have no answer, as a drawn split needs"


# Options of ``farspan pairs``.
NEEDED: dict[str, Any] = {"inputs": (), "documents": "d", "output": "o"}


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
    ],
)
def test_shares_out_of_range_are_refused(options, said):
    with pytest.raises(FarspanError, match=said):
        Pairs(**NEEDED, **options)


# Faults of single pairs, without a job.
def fault_of(pair: RawPair, format: str) -> str:
    read = ReadPairs("output", "documents", {"mine": ReadOptions(format=f"{PAIRS_OF}{format}")}, "data", ())
    found = read._fault(ReadPair(pair, "", "mine", "train.jsonl", "0", []), {})
    assert found is not None
    return found[1]


def test_a_pair_of_ones_own_without_answer_names_the_fields_that_may_hold_it():
    pair = RawPair(pair_id="p", documents=(), split="train", attributes={"summary": "Short.", "year": 1})
    told = "pair 'p' has no answer, and pairs of split train need one"
    hint = "; its other fields: summary, year; name that of the answer with --reference-field"
    assert fault_of(pair, "pairs") == told + hint
    assert fault_of(pair, "qasper") == told
