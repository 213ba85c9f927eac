"""Parts that all metrics share."""

from __future__ import annotations

import numpy as np
import pytest

from corpora.errors import FarspanError
from objectives.metrics.protocol import check_references, round_values


def test_the_first_prediction_without_a_reference_is_named():
    check_references("f1", [["a"], ["b", "c"]])
    check_references("f1", [])
    with pytest.raises(FarspanError, match=r"^metric f1: prediction 1 has no reference; score pairs that have one"):
        check_references("f1", [["a"], [], []])


def test_numbers_have_four_decimals_as_python_floats():
    found = round_values({"a": np.float64(12.345678), "b": np.float32(0.5), "c": np.array(7)})
    assert found == {"a": 12.3457, "b": 0.5, "c": 7.0}
    assert {type(value) for value in found.values()} == {float}
