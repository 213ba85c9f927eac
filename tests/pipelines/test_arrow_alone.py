"""Arrow does not import pandas, but works with it once other code has imported it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from pipelines.arrow_alone import leave_pandas_out
leave_pandas_out()
import pyarrow as pa, numpy as np
assert pa.array(np.arange(3)).to_pylist() == [0, 1, 2]
assert pa.array([None, "a"], pa.string()).to_pylist() == [None, "a"]
assert "pandas" not in sys.modules
assert pa.table({"a": [1]}).to_pandas()["a"].tolist() == [1]
assert pa.array(sys.modules["pandas"].Series([1.0, float("nan")])).to_pylist() == [1.0, None]
"""


def test_arrow_looks_for_pandas_when_it_is_asked_for_it():
    pytest.importorskip("pandas")
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
