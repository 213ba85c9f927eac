from __future__ import annotations

import math

import numpy as np

from corpora.linking.greedy import Limits, document_groups
from corpora.storage.ragged import Ragged

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
    assert np.array_equal(groups.similarities, np.float32([np.nan, 1, 0.9, np.nan]), equal_nan=True)
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
