"""Distributions hold the values that the rows of an artefact have, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from corpora.schemas.corpus import Corpus
from corpora.schemas.pairs import PairSet
from pipelines.inspect.distributions import distributions
from tests.artefacts import all_rows, make_corpus, make_documents, make_pairs


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> str:
    return make_documents(str(tmp_path_factory.mktemp("documents") / "documents"), shards=3)


def values_of(folder: str) -> dict[tuple[str, str], list]:
    return {(one.name, one.source): one.values.tolist() for one in distributions(folder, sample=5)}


def test_documents(documents):
    lengths = [len(row["tokens"]) for row in all_rows(documents)]
    assert values_of(documents) == {("document length", ""): lengths}


def test_a_corpus(tmp_path):
    folder = make_corpus(str(tmp_path / "corpus"))
    corpus = Corpus(folder)
    batch = corpus.take(np.arange(len(corpus)))
    found = values_of(folder)
    assert found["sequence length", ""] == batch.tokens.lengths.tolist()
    assert sum(found["part length", ""]) == batch.tokens.lengths.sum()
    assert len(found["part length", ""]) == batch.document_starts.lengths.sum()
    assert len(found["redundancy", ""]) == 5


def test_pairs_by_split(documents, tmp_path):
    folder = make_pairs(str(tmp_path / "pairs"), documents, documents_per_pair=2)
    pairs = PairSet(folder)
    lengths, rows = [len(row["tokens"]) for row in all_rows(documents)], pairs.table(range(len(pairs))).to_pylist()
    found = values_of(folder)
    for split in ("train", "validation"):
        own = [row for row in rows if row["split"] == split]
        assert found["query length", split] == [len(row["query"]) for row in own]
        assert found["target length", split] == [len(target) for row in own for target in row["targets"]]
        wanted = [sum(lengths[place] for place in row["document_rows"]) for row in own]
        assert found["length of a pair's documents", split] == wanted
    assert found["references of a pair", ""] == [len(row["references"]) for row in rows]
