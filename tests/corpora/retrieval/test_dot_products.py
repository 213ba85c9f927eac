"""Inner products against rational arithmetic."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpora.retrieval.dot_products import EXACT_BELOW, dot_exactly, dot_in_order, error_bound, squared_lengths


def halves(rng: np.random.Generator, dimension: int, largest: float) -> np.ndarray:
    """float32 numbers of all sizes that float16 holds, subnormal ones too."""
    numbers = rng.standard_normal(dimension) * 2.0 ** rng.integers(-24, 1, dimension)
    return (largest * numbers / np.linalg.norm(numbers)).astype(np.float16).astype(np.float32)


def rational(a: np.ndarray, b: np.ndarray) -> Fraction:
    return sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)), Fraction(0))


@given(st.integers(0, 2**32), st.integers(1, 300), st.floats(0.01, EXACT_BELOW**0.5 - 0.01))
def test_vectors_that_are_not_long_have_exact_products(seed, dimension, length):
    rng = np.random.default_rng(seed)
    a, b = halves(rng, dimension, length), halves(rng, dimension, length)
    exact = rational(a, b)
    assert Fraction(dot_exactly(a, b)) == Fraction(dot_in_order(a, b)) == exact
    order = rng.permutation(dimension)
    assert dot_exactly(a[order], b[order]) == dot_exactly(a, b)


@given(st.integers(0, 2**32), st.integers(1, 300), st.sampled_from([1.0, 100.0]))
def test_matrix_products_stay_within_the_bound(seed, dimension, length):
    rng = np.random.default_rng(seed)
    a, b = (np.stack([halves(rng, dimension, length) for _ in range(5)]) for _ in range(2))
    lengths = np.empty(5), np.empty(5)
    squared_lengths(a, lengths[0])
    squared_lengths(b, lengths[1])
    bound = error_bound(dimension) * np.sqrt(np.outer(*lengths))
    exact = np.array([[float(rational(x, y)) for y in b] for x in a])
    assert (np.abs((a @ b.T).astype(np.float64) - exact) <= bound).all()


def test_long_vectors_are_summed_from_left_to_right():
    a = np.array([60000.0, 2.0**-24, -60000.0], np.float32)
    b = np.array([60000.0, 2.0**-24, 60000.0], np.float32)
    assert dot_in_order(a, b) == 0.0
    assert dot_in_order(a[[0, 2, 1]], b[[0, 2, 1]]) == 2.0**-48
