"""Study files: each is planned, and all options of its commands are checked, without any data."""

from pathlib import Path

import pytest

from pipelines.options import Study
from pipelines.study.run import command

FILES = sorted((Path(__file__).parents[2] / "examples" / "studies").glob("*.toml"))
ARMS = {"bart_ls_gov_report_grid": 3 * 2, "bart_ls_qmsum_grid": 3 * 2 * 2 * 2}
"""Arms of the grids of BART-LS's table 8."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_study_can_be_planned(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command(Study(file=str(path), output="out", dry_run=True))
    out = capsys.readouterr().out
    assert "0 of " in out.splitlines()[-1]
    assert not list(tmp_path.iterdir())
    if path.stem in ARMS:
        assert sum(line.startswith("to do  tuning-") for line in out.splitlines()) == ARMS[path.stem]
