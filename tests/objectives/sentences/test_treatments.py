"""Probabilities of treatments at their boundaries."""

from __future__ import annotations

import numpy as np
import pytest

from objectives.sentences.treatments import choose_treatments


@pytest.mark.parametrize(
    ("chances", "lowest", "highest"),
    [
        ([0.7, 0.1, 0.1, 0.1], 0, 3),  # adds up to a little less than 1
        ([0.9, 0.0, 0.1, 0.0], 0, 2),
        ([0.0, 1.0, 0.0, 0.0], 1, 1),
        ([0.0, 0.3, 0.0, 0.7], 1, 3),
    ],
)
def test_no_draw_leaves_the_treatments_that_have_a_chance(chances, lowest, highest):
    draws = np.zeros((2, 4), np.uint64)
    draws[1] = 2**64 - 1
    assert choose_treatments(draws, chances).tolist() == [lowest, highest]
