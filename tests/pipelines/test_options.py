"""Options that several commands share."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.options import recorded
from pipelines.commands import build_parser
from pipelines.engine.options import Finalize
from pipelines.options import check_shards


def test_a_negative_number_of_shards_is_refused():
    check_shards(0)
    with pytest.raises(FarspanError, match="--shards -1: give 0"):
        check_shards(-1)


@pytest.mark.parametrize("command", ["documents", "pairs", "finalize"])
def test_the_error_budget_has_one_meaning_in_all_commands(command, capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "each is counted separately (default: 0.01)" in text


def test_the_error_budget_is_not_part_of_an_artefacts_configuration():
    assert "error_budget" not in recorded(Finalize(output="folder"))
