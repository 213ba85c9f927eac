"""Paths through the graph of similar documents: greedy, exact and ordered ones."""

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


@pytest.mark.parametrize(
    ("values", "similarities", "message"),
    [
        ([2, 0], [0.5, 0.5], r"document 0 of 2 has the neighbours \[2\]"),
        ([1, -1], [0.5, 0.5], "document 1 of 2"),
        ([1, 0], [0.5, float("nan")], "document 1 of 2"),
    ],
)
def test_a_row_that_cannot_be_is_named(values, similarities, message):
    neighbours = Ragged(np.array(values, np.int32), np.array([0, 1, 2]))
    with pytest.raises(FarspanError, match=message):
        Graph(neighbours, np.array(similarities, np.float32), np.zeros(2, bool)).check()


def test_rising_similarities_are_no_order():
    neighbours = Ragged(np.array([1, 0], np.int32), np.array([0, 2, 2]))
    with pytest.raises(FarspanError, match="best first"):
        Graph(neighbours, np.array([0.5, 0.6], np.float32), np.zeros(2, bool)).check()


def test_clusters_do_not_depend_on_record_batches(batches):
    found = list(clusters_of_shard(batches))
    assert [(cluster.number, len(cluster.rows)) for cluster in found] == [(7, 3), (8, 1), (9, 2)]
    lists = [[row.tolist() for row in cluster.neighbours] for cluster in found]
    assert lists == [[[1, 2], [0], []], [[]], [[1], [0]]]  # numbers in the cluster
    similarities = [np.round(cluster.similarities.tolist(), 3).tolist() for cluster in found]
    assert similarities == [[0.9, 0.5, 0.9], [], [2.0, 2.0]]
    assert [np.round(cluster.jaccards.tolist(), 2).tolist() for cluster in found] == [[0.1, 0.85, 0.1], [], [0.0, 0.0]]


LIMITS = Limits(capacity=12, room_per_document=1, least=0, max_uses=1, min_similarity=-math.inf, chain=False)


def grown(rows, limits=LIMITS, sizes=None, families=None, seeds=None, candidates=None):
    """Groups of documents of 3 tokens, of which three fit; neighbours of falling similarity."""
    n = len(rows)
    groups = document_groups(
        Ragged.from_rows(rows, np.int32),
        np.array([1 - place / 10 for row in rows for place in range(len(row))], np.float32),
        np.arange(n) if families is None else np.array(families),
        np.full(n, 3) if sizes is None else np.array(sizes),
        np.arange(n) if seeds is None else np.array(seeds),
        np.ones(n, bool) if candidates is None else np.array(candidates),
        limits,
    )
    return [groups.documents[i].tolist() for i in range(len(groups.documents))], groups


def test_no_documents_no_groups():
    rows, groups = grown([])
    assert rows == []
    assert len(groups.refused) == len(groups.similarities) == 0


def test_seed_takes_its_neighbours_while_they_fit():
    rows, groups = grown([[2, 1, 3], [], [], []])
    assert rows == [[0, 2, 1], [3]]
    assert np.array_equal(groups.similarities, np.array([np.nan, 1, 0.9, np.nan], np.float32), equal_nan=True)
    assert grown([[1, 2], [], []], sizes=[6, 9, 3])[0] == [[0, 2], [1]]  # 1 is passed over


def test_seeds_are_tried_in_their_order_and_others_only_added():
    assert grown([[1], [], [1]], seeds=[2, 0])[0] == [[2, 1], [0]]
    assert grown([[1, 2], [], []], candidates=[True, False, True])[0] == [[0, 2], [1]]


def test_chain_follows_the_last_added():
    rows = [[1, 2], [3], [], [], []]
    assert grown(rows)[0] == [[0, 1, 2], [3], [4]]
    assert grown(rows, LIMITS._replace(chain=True))[0] == [[0, 1, 3], [2], [4]]


def test_uses_are_limited_and_given_back_with_the_group():
    rows = [[2], [2], []]
    assert grown(rows)[0] == [[0, 2], [1]]
    assert grown(rows, LIMITS._replace(max_uses=2))[0] == [[0, 2], [1, 2]]
    given_up, _ = grown([[2], [2, 3], [], []], LIMITS._replace(least=12))  # 0 has one neighbour: not enough
    assert given_up == [[1, 2, 3]]


def test_families_do_not_meet_and_it_is_told():
    rows, groups = grown([[1, 2, 3], [], [], []], families=[1, 1, 3, 3])
    assert rows == [[0, 2], [1], [3]]
    assert groups.refused.tolist() == [[0, 1], [2, 3]]


def test_more_documents_in_groups_than_seeds():
    n = 40
    rows, _ = grown([[(i + 1) % n, (i + 2) % n] for i in range(n)], LIMITS._replace(max_uses=9), seeds=[0, 3, 6, 9])
    assert rows == [[i, i + 1, i + 2] for i in (0, 3, 6, 9)]


def test_neighbours_end_at_the_least_similarity():
    assert grown([[1, 2], [], []], LIMITS._replace(min_similarity=0.95))[0] == [[0, 1], [2]]


def walked(rows, ranks=None, families=None, kept=None, **options):
    """Path and steps from rows of (neighbour, similarity)."""
    n = len(rows)
    neighbours = Ragged.from_rows([[other for other, _ in row] for row in rows], np.int32)
    path, steps = document_path(
        neighbours,
        np.array([similarity for row in rows for _, similarity in row], np.float32),
        np.arange(n) if families is None else np.array(families),
        np.ones(n, bool) if kept is None else np.array(kept),
        np.arange(n, dtype=np.int32) if ranks is None else np.array(ranks, np.int32),
        **options,
    )
    return path.tolist(), [None if np.isnan(step) else round(float(step), 3) for step in steps]


def test_no_documents():
    assert walked([]) == ([], [])


def test_documents_without_links_stand_in_the_order_of_their_ranks():
    assert walked([[], [], []], ranks=[2, 0, 1]) == ([1, 2, 0], [None] * 3)


def test_path_begins_where_degree_is_least_and_takes_the_heaviest_link():
    # 0 - 1 - 2 - 3 - 1: 0 has one neighbour, 2 and 3 two, 1 three; the start is the end
    rows = [[(1, 0.1)], [(3, 0.9), (2, 0.8), (0, 0.1)], [(1, 0.8), (3, 0.7)], [(1, 0.9), (2, 0.7)]]
    assert walked(rows) == ([2, 3, 1, 0], [None, 0.7, 0.9, 0.1])


def test_path_goes_on_the_other_way():
    # two triangles, 1 - 3 - 4 and 2 - 5 - 6, with 0 between 1 and 2
    rows = [[(1, 0.9), (2, 0.8)], [(3, 0.7), (4, 0.6)], [(5, 0.7), (6, 0.6)], [(4, 0.5)], [], [(6, 0.5)], []]
    assert walked(rows) == ([4, 3, 1, 0, 2, 5, 6], [None, 0.5, 0.7, 0.9, 0.8, 0.7, 0.5])


def test_links_count_both_ways_whoever_lists_them():
    assert walked([[], [(0, 0.4)], [(0, 0.6)]]) == ([2, 0, 1], [None, 0.6, 0.4])
    # a link listed by both is one link: 0 and 2 have one each, 1 two
    line = [[(1, 0.5)], [(0, 0.5), (2, 0.5)], [(1, 0.5)]]
    assert walked(line, ranks=[1, 0, 2]) == ([2, 1, 0], [None, 0.5, 0.5])


def test_where_both_list_a_link_the_row_it_is_taken_from_counts():
    rows = [[(1, 0.3)], [(0, 0.4)]]
    assert walked(rows) == ([1, 0], [None, 0.3])
    assert walked(rows, ranks=[1, 0]) == ([0, 1], [None, 0.4])


def test_path_begins_again_at_dead_ends():
    rows = [[(1, 0.9)], [(0, 0.9)], [(3, 0.8)], [(2, 0.8)]]
    assert walked(rows) == ([1, 0, 3, 2], [None, 0.9, None, 0.8])


def test_among_equals_the_list_of_the_document_comes_first_and_then_the_lowest_rank():
    rows = [[(2, 0.5), (1, 0.5)], [(2, 0.1)], [], [(0, 0.5)]]  # from 3 to 0, from there to 2 or 1
    assert walked(rows, ranks=[3, 0, 1, 2])[0] == [1, 2, 0, 3]
    assert walked(rows, ranks=[3, 1, 0, 2])[0] == [1, 2, 0, 3]
    rows = [[(3, 0.5)], [(0, 0.5)], [(0, 0.5)], [(1, 0.4), (2, 0.4)]]  # from 0 to 3, though 1 and 2 list it
    assert walked(rows, ranks=[0, 1, 2, 3])[0] == [2, 3, 0, 1]
    assert walked([[], [(0, 0.5)], [(0, 0.5)]], ranks=[0, 2, 1])[0] == [1, 0, 2]


def test_links_inside_families_weak_links_and_other_documents_do_not_count():
    rows = [[(1, 0.9), (2, 0.8)], [(0, 0.9)], [(0, 0.8)]]
    assert walked(rows) == ([2, 0, 1], [None, 0.8, 0.9])
    assert walked(rows, families=[0, 0, 2]) == ([1, 2, 0], [None, None, 0.8])
    assert walked(rows, min_similarity=0.85) == ([2, 1, 0], [None, None, 0.9])
    assert walked(rows, kept=[True, True, False]) == ([1, 0], [None, 0.9])
