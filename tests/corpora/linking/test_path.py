"""The graph of similar documents and its checks; a group and a path by hand (test_policies.py has the oracle)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.linking.graph import Graph, clusters_of_shard
from corpora.linking.greedy import Limits, document_groups
from corpora.linking.path import document_path
from corpora.storage.ragged import Ragged


@st.composite
def lists(draw):
    """Rows of (other document, near-duplicate) for up to 8 documents; some have none."""
    count = draw(st.integers(0, 8))
    others = st.integers(0, max(count - 1, 0))
    row = st.lists(st.tuples(others, st.booleans()), unique_by=lambda edge: edge[0], max_size=count)
    return [draw(row) for _ in range(count)]


def graph_of(rows):
    """Similarities fall along every row."""
    neighbours = Ragged.from_rows([[other for other, _ in row] for row in rows], np.int32)
    similarities = np.concatenate([[1 / (place + 1) for place in range(len(row))] for row in rows] or [[]])
    near = np.array([near for row in rows for _, near in row], bool)
    return Graph(neighbours, similarities.astype(np.float32), near)


@given(lists())
def test_pairs_of_near_duplicates_whichever_row_says_so(rows):
    graph = graph_of(rows)
    graph.check()
    said = {(min(row, other), max(row, other)) for row, edges in enumerate(rows) for other, near in edges if near}
    assert [tuple(pair) for pair in graph.near_duplicate_pairs().tolist()] == sorted(
        (low, high) for low, high in said if low < high
    )


def test_columns_of_unequal_length_are_refused():
    graph = graph_of([[(1, False)], [(0, True)]])
    with pytest.raises(FarspanError, match="2 neighbours have 1 similarities and 2 marks"):
        Graph(graph.neighbours, graph.similarities[:1], graph.near_duplicates).check()
    with pytest.raises(FarspanError, match="2 neighbours have 2 similarities and 1 marks"):
        Graph(graph.neighbours, graph.similarities, graph.near_duplicates[:1]).check()


def test_clusters_do_not_depend_on_record_batches(batches):
    found = list(clusters_of_shard(batches))
    assert [(cluster.number, len(cluster.rows)) for cluster in found] == [(7, 3), (8, 1), (9, 2)]
    lists = [[row.tolist() for row in cluster.neighbours] for cluster in found]
    assert lists == [[[1, 2], [0], []], [[]], [[1], [0]]]  # numbers in the cluster
    similarities = [np.round(cluster.similarities.tolist(), 3).tolist() for cluster in found]
    assert similarities == [[0.9, 0.5, 0.9], [], [2.0, 2.0]]
    assert [np.round(cluster.jaccards.tolist(), 2).tolist() for cluster in found] == [[0.1, 0.85, 0.1], [], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("rows", "similarities", "message"),
    [
        ([[2], [0]], [0.5, 0.5], r"document 0 of 2 has the neighbours \[2\]"),
        ([[1], [-1]], [0.5, 0.5], "document 1 of 2"),
        ([[1], [0]], [0.5, float("nan")], "document 1 of 2"),
        ([[1, 0], []], [0.5, 0.6], "document 0 of 2 .* best first"),
    ],
)
def test_a_row_that_cannot_be_is_named(rows, similarities, message):
    graph = Graph(Ragged.from_rows(rows, np.int32), np.array(similarities, np.float32), np.zeros(2, bool))
    with pytest.raises(FarspanError, match=message):
        graph.check()


def test_more_documents_in_groups_than_seeds():
    n = 40
    limits = Limits(capacity=12, room_per_document=1, least=0, max_uses=9, min_similarity=-math.inf, chain=False)
    neighbours = Ragged.from_rows([[(i + 1) % n, (i + 2) % n] for i in range(n)], np.int32)
    similarities, seeds = np.tile(np.array([1, 0.9], np.float32), n), np.array([0, 3, 6, 9])
    groups = document_groups(neighbours, similarities, np.arange(n), np.full(n, 3), seeds, np.ones(n, bool), limits)
    assert [row.tolist() for row in groups.documents] == [[i, i + 1, i + 2] for i in (0, 3, 6, 9)]


def test_a_path_begins_where_degree_is_least_and_goes_both_ways():
    # two triangles, 1 - 3 - 4 and 2 - 5 - 6, with 0 between 1 and 2
    rows = [[1, 2], [3, 4], [5, 6], [4], [], [6], []]
    similarities = np.array([0.9, 0.8, 0.7, 0.6, 0.7, 0.6, 0.5, 0.5], np.float32)
    ranks, neighbours = np.arange(7, dtype=np.int32), Ragged.from_rows(rows, np.int32)
    path, steps = document_path(neighbours, similarities, np.arange(7), np.ones(7, bool), ranks)
    assert path.tolist() == [4, 3, 1, 0, 2, 5, 6]
    assert np.array_equal(steps, np.array([np.nan, 0.5, 0.7, 0.9, 0.8, 0.7, 0.5], np.float32), equal_nan=True)
