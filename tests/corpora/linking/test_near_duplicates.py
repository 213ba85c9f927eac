"""Near-duplicates of clusters, by each rule and as a table."""

from __future__ import annotations

import numpy as np
import pytest

from corpora.linking.graph import clusters_of_shard
from corpora.linking.near_duplicates import edge_graph, near_duplicates
from corpora.linking.options import Linking


def near(batches, **options) -> list[list[bool]]:
    linking = Linking(**options)
    return [edge_graph(cluster, linking).near_duplicates.tolist() for cluster in clusters_of_shard(batches)]


def test_words_and_vectors_make_near_duplicates(batches):
    assert near(batches, max_jaccard=None) == [[False] * 3, [], [False] * 2]
    assert near(batches, max_jaccard=0.8) == [[False, True, False], [], [False] * 2]
    assert near(batches, max_jaccard=None, max_cosine=0.8) == [[True, False, True], [], [False] * 2]
    assert near(batches, max_jaccard=None, max_cosine=0.4) == [[True] * 3, [], [True] * 2]


def test_pairs_have_the_similarities_that_either_list_gives(batches):
    cluster = next(clusters_of_shard(batches))
    graph = edge_graph(cluster, Linking(max_jaccard=0.8))
    table = near_duplicates(cluster, graph, np.array([[0, 2], [1, 2]])).to_pylist()
    assert [tuple(row.values())[:2] for row in table] == [("made:0", "made:2"), ("made:1", "made:2")]
    assert table[0]["similarity"] == pytest.approx(0.5)
    assert table[0]["jaccard"] == pytest.approx(0.85, abs=1e-3)
    assert (table[1]["similarity"], table[1]["jaccard"]) == (None, None)  # neither lists the other
