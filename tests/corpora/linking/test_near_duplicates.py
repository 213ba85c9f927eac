"""Clusters read from a neighbours shard, and the near-duplicates of their graphs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from corpora.linking.near_duplicates import clusters_of_shard, edge_graph, near_duplicates
from corpora.linking.options import Linking
from corpora.schemas.vectors import neighbours_schema

CLUSTERS = [7, 7, 7, 8, 9, 9]
NEIGHBOURS = [[1, 2], [0], [], [], [5], [4]]  # rows of the shard
SIMILARITIES = [[0.9, 0.5], [0.9], [], [], [2.0], [2.0]]
JACCARDS = [[0.1, 0.85], [0.1], [], [], [0.0], [0.0]]
NORMS = [1.0, 1.0, 1.0, 1.0, 1.0, 4.0]


@pytest.fixture(params=[1, 2, 4, 6])
def batches(request):
    schema = neighbours_schema()
    columns = {
        "document_id": [f"made:{row}" for row in range(6)],
        "document_row": list(range(10, 16)),
        "document_tokens": [5] * 6,
        "cluster_id": CLUSTERS,
        "norm": NORMS,
        "neighbours": NEIGHBOURS,
        "similarities": [list(map(np.float16, row)) for row in SIMILARITIES],
        "jaccards": [list(map(np.float16, row)) for row in JACCARDS],
    }
    whole = pa.record_batch([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
    return [whole.slice(first, request.param) for first in range(0, 6, request.param)]


def test_clusters_do_not_depend_on_record_batches(batches):
    found = list(clusters_of_shard(batches))
    assert [(cluster.number, len(cluster.rows)) for cluster in found] == [(7, 3), (8, 1), (9, 2)]
    lists = [[row.tolist() for row in cluster.neighbours] for cluster in found]
    assert lists == [[[1, 2], [0], []], [[]], [[1], [0]]]  # numbers in the cluster


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
