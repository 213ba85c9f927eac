"""Lengths of pairs and their documents, against the stored rows."""

from __future__ import annotations

import numpy as np
import pytest

from corpora.schemas.pair_lengths import PairLengths
from corpora.schemas.pairs import open_pairs
from tests.artefacts import all_rows, make_documents, make_pairs


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("pairs")
    documents = make_documents(str(root / "documents"), shards=2, documents=8)
    return documents, make_pairs(str(root / "pairs"), documents, documents_per_pair=2)


def test_lengths_are_those_of_the_stored_rows(folders):
    lengths = PairLengths.of(open_pairs(folders[1]))
    documents = [len(row["tokens"]) for row in all_rows(folders[0], "farspan.documents")]
    rows = all_rows(folders[1], "farspan.pairs")
    assert lengths.documents.tolist() == documents
    assert lengths.queries.tolist() == [len(row["query"]) for row in rows]
    targets = [[len(target) for target in row["targets"]] for row in rows]
    assert lengths.targets.tolist() == [length for row in targets for length in row]
    assert lengths.longest_targets.tolist() == [max(row, default=0) for row in targets]

    pairs = np.array([9, 1, 9, 17])  # any order, also twice
    expected = [[documents[document] for document in rows[pair]["document_rows"]] for pair in pairs]
    of_pairs = lengths.documents_of(pairs)
    assert [of_pairs[place].tolist() for place in range(len(pairs))] == expected
    last = np.array([len(targets[pair]) - 1 for pair in pairs])
    assert lengths.targets_of(pairs, last).tolist() == [targets[pair][-1] for pair in pairs]
    assert lengths.targets_of(pairs, None).tolist() == [max(targets[pair]) for pair in pairs]
