"""Normal numbers against the C library, and the distribution of many."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from objectives.draws.normal import cos_of_turns, log, normal

SHARES = st.integers(0, 2**53 - 1).map(lambda whole: whole * 2.0**-53)


def test_many_are_distributed_normally():
    bits = np.random.Philox(1).random_raw(80_000).reshape(-1, 4)
    assert stats.kstest(normal(bits), "norm").pvalue > 0.01


def test_normal_numbers_are_box_and_mullers():
    bits = np.array([[0, 0, 0, 0], [2**64 - 1, 2**63, 0, 0], [2**63, 2**62, 0, 0]], np.uint64)
    expected = [0.0, -math.sqrt(2 * 53 * math.log(2)), 0.0]
    assert normal(bits) == pytest.approx(expected, abs=1e-12)


@given(SHARES)
def test_logarithms_and_cosines_are_those_of_the_c_library(share):
    assert log(1 - share) == pytest.approx(math.log(1 - share), rel=1e-15)
    assert cos_of_turns(share) == pytest.approx(math.cos(2 * math.pi * share), abs=2e-15)


def test_logarithms_near_the_ends():
    for x in (1.0, 1 - 2.0**-53, 1 - 2.0**-52, 2.0**-53, 2.0**-52, math.sqrt(0.5), 0.5):
        assert log(x) == pytest.approx(math.log(x), rel=1e-15)
