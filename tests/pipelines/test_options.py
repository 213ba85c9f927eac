"""Options that several commands share."""

from __future__ import annotations

import pytest

from corpora.options import recorded
from pipelines.commands import build_parser
from pipelines.engine.options import Finalize


@pytest.mark.parametrize("command", ["documents", "pairs", "finalize"])
def test_the_error_budget_has_one_meaning_in_all_commands(command, capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "each is counted separately (default: 0.01)" in text


def test_the_error_budget_is_not_part_of_an_artefacts_configuration():
    assert "error_budget" not in recorded(Finalize(output="folder"))
