"""Orders of documents against plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpora.linking.ordering import places_in_first_list, ranks, shuffle_draws


@given(st.permutations(range(8)))
def test_ranks_invert_an_order(order):
    assert ranks(np.array(order)).tolist() == [order.index(document) for document in range(8)]


def test_places_are_those_in_the_list_of_the_rows_first_document():
    lists, offsets = np.array([2, 1, 0, 3, 1], np.int32), np.array([0, 2, 4, 5, 5])  # 0: 2 1; 1: 0 3; 2: 1; 3: none
    documents, rows = np.array([0, 1, 2, 3, 1, 3]), np.array([0, 4, 6])
    assert places_in_first_list(lists, offsets, documents, rows).tolist() == [-1, 1, 0, 5, -1, 1]


def test_draws_depend_on_the_first_key_of_a_row_alone():
    keys = np.arange(20, dtype=np.uint64).reshape(10, 2)
    found = shuffle_draws(keys, np.array([0, 6, 10]))
    first = np.random.Philox(key=[0, 1]).random_raw(6)
    second = np.random.Philox(key=[12, 13]).random_raw(4)
    assert found.tolist() == [*first.tolist(), *second.tolist()]
