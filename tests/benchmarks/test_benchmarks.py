"""``python -m benchmarks``: every script is run by it, or named as one that is run alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks

FOLDER = Path(__file__).parents[2] / "benchmarks"
PARTS = {"bare_pool.py", "datatrove_pipeline.py", "peer_readers.py", "text.py"}
"""Scripts that others run: a side of a comparison, and the text."""


def test_every_script_is_run_or_named():
    scripts = {path.name for path in FOLDER.glob("*.py") if 'if __name__ == "__main__":' in path.read_text("utf-8")}
    scripts -= {"__main__.py"}
    listed = set(benchmarks.SCRIPTS)
    assert listed <= scripts
    alone = {name for name in scripts - listed - PARTS if name not in (benchmarks.__doc__ or "")}
    assert alone == set()
    assert all(name in "".join((FOLDER / other).read_text("utf-8") for other in scripts - {name}) for name in PARTS)


def test_options_are_refused(monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks", "--rounds", "3"])
    with pytest.raises(SystemExit, match="Options go to no script"):
        benchmarks.main()
