"""In-context pretraining's chains by hand, and every document once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.iclm_chains import published_algorithm, published_code

# each row begins with the document itself; 0 - 1 - 2 in a line, 3 with nobody near
LINE = np.array([[0, 1, 2], [1, 0, 2], [2, 1, 0], [3, 3, 3]], np.int32)
WEIGHTS = np.array([[1, 0.9, 0.1], [1, 0.9, 0.8], [1, 0.8, 0.1], [1, 0, 0]], np.float32)


def test_the_algorithm_begins_where_degree_is_least_and_takes_the_heaviest_link():
    assert published_algorithm(LINE[:3], WEIGHTS[:3]) == [0, 1, 2]
    # 3 is linked to itself alone: one link, where the others have two
    assert published_algorithm(LINE, WEIGHTS) == [3, 0, 1, 2]


def test_the_code_takes_the_first_unseen_neighbour_and_cuts_chains():
    assert published_code(LINE, chain=9) == [0, 1, 2, 3]
    # after one step a chain ends: 0 1 | 2 ...; a short chain's document goes before its first neighbour elsewhere
    order = published_code(np.array([[0, 1], [1, 2], [2, 1], [3, 2]], np.int32), chain=1)
    assert sorted(order) == [0, 1, 2, 3]


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**31))
def test_every_document_comes_once(count, near, chain, seed):
    rng = np.random.default_rng(seed)
    near = min(near, count - 1)
    others = [[row, *rng.permutation(np.delete(np.arange(count), row))[:near].tolist()] for row in range(count)]
    rows = np.array(others, np.int32)
    similarities = rng.random(rows.shape, np.float32)
    everything = list(range(count))
    assert sorted(published_algorithm(rows, similarities)) == everything
    assert sorted(published_code(rows, chain=chain)) == everything
