"""A whole run of the ablations at small size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.scripts import EXAMPLES


@pytest.mark.slow
def test_a_quick_run_goes_on_after_a_kill(tmp_path):
    """About ten minutes of two cores: all tables, one seed."""
    command = [sys.executable, EXAMPLES / "ablations.py", tmp_path, "--quick"]
    first = subprocess.Popen(command, start_new_session=True)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(60)
    os.killpg(first.pid, 9)
    first.wait()
    made = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/manifest.json")}
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert all(f"table {number}," in printed for number in (1, 2, 3))
    assert Path(tmp_path, "ablations.svg").stat().st_size > 10_000
