"""Lengths of sources, groups by length, and shares of copies."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from corpora.schemas.pairs import open_pairs
from corpora.storage.ragged import Ragged
from corpora.tokenizers.load import load_tokenizer_of
from objectives.metrics.copies import copied_shares
from pipelines.evaluation.sources import copied, length_bins, source_lengths
from pipelines.evaluation.systems import Questions, System, read_systems
from tests.artefacts import make_documents, make_pairs


def tokens_of(questions: Questions) -> list[list[np.ndarray]]:
    documents = questions.pairs.documents
    rows = Ragged.from_arrow(documents.take(range(len(documents))).combine_chunks().column("tokens").chunk(0))
    return [[rows[row] for row in own] for own in questions.table.column("document_rows").to_pylist()]


@pytest.fixture(scope="module")
def questions(tmp_path_factory) -> Questions:
    """Two documents for each pair, each document in two pairs or more."""
    root = tmp_path_factory.mktemp("sources")
    documents = make_documents(str(root / "d"), shards=2, documents=8)
    return Questions(open_pairs(make_pairs(str(root / "p"), documents, 60, documents_per_pair=2)), "validation")


def test_lengths_are_those_of_all_documents(questions):
    assert source_lengths(questions).tolist() == [sum(map(len, own)) for own in tokens_of(questions)]


def test_copies_are_looked_for_in_all_documents(questions):
    tokenizer = load_tokenizer_of(questions.pairs.documents.folder)
    sources = ["\n".join(map(tokenizer.decode, own)) for own in tokens_of(questions)]
    taken = [source[len(source) // 2 :][:60] for source in sources]
    found = copied(questions, [System("taken", taken, {}), System("other", sources[1:] + sources[:1], {})])
    for texts, shares in ((taken, found[0]), (sources[1:] + sources[:1], found[1])):
        expected = [copied_shares([text], source)[0] for text, source in zip(texts, sources, strict=True)]
        assert np.array_equal(shares, expected, equal_nan=True)
    assert np.nanmean(found[0]) > np.nanmean(found[1]) + 0.3


@pytest.mark.parametrize("bins", [1, 2, 5, 100])
def test_bins_are_ordered_and_complete(bins):
    lengths = np.random.default_rng(0).integers(1, 40, 90)
    groups = length_bins(lengths, bins)
    assert sorted(np.concatenate(groups).tolist()) == list(range(90))
    assert len(groups) <= bins
    edges = [(lengths[rows].min(), lengths[rows].max()) for rows in groups]
    assert all(low > high for (_, high), (low, _) in pairwise(edges))
    if bins <= 5:
        assert len(groups) == bins
        assert max(map(len, groups)) - min(map(len, groups)) < 12


def test_sources_of_one_length_are_one_group():
    assert [rows.tolist() for rows in length_bins(np.full(6, 9), 4)] == [[0, 1, 2, 3, 4, 5]]


def test_predictions_of_an_artefact_are_read(made):
    questions, systems = read_systems([made.good, made.poor])
    assert [len(shares) for shares in copied(questions, systems)] == [40, 40]
