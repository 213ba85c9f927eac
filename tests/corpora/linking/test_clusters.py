"""Near-duplicates and options of linking."""

from __future__ import annotations

import math

import numpy as np
import pytest

from corpora.errors import FarspanError
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_uses": 0}, "--max-uses 0: must be at least 1"),
        ({"min_similarity": float("nan")}, "--min-similarity nan"),
        ({"max_cosine": 1.5}, "--max-cosine 1.5"),
        ({"max_jaccard": -0.1}, "--max-jaccard -0.1"),
        ({"min_fill": float("nan")}, "--min-fill nan"),
        ({"min_fill": 1.1}, "--min-fill 1.1"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(FarspanError, match=message):
        Linking(**options)


def test_a_path_ignores_what_it_has_no_use_for():
    path = Linking(policy="path", max_uses=5, min_fill=0.9)
    assert path.resolved == Linking(policy="path", order="chain", max_uses=1, min_fill=0.0)
    assert Linking(policy="path", order="shuffle").resolved.order == "shuffle"
    nearest = Linking(policy="nearest", max_uses=5)
    assert nearest.resolved is nearest


def test_without_a_least_similarity_every_neighbour_counts():
    assert Linking().floor == -math.inf
    assert Linking(min_similarity=0.25).floor == 0.25
