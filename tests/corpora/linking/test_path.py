from __future__ import annotations

import numpy as np

from corpora.linking.path import document_path
from corpora.storage.ragged import Ragged


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
