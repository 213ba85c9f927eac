"""Options of ``farspan view``."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.settings import make
from pipelines.commands import build_parser
from pipelines.view.options import View


def test_mask_sets_follow_one_flag():
    words = ["view", "corpus", "--masks", "a", "b", "--objective", "t5", "--objective", "pegasus", "--masks", "c"]
    options = make(View, vars(build_parser().parse_args(words)))
    assert options.artefact == ("corpus",)
    assert options.masks == ("a", "b", "c")
    assert options.objective == ("t5", "pegasus")
    assert make(View, vars(build_parser().parse_args(["view", "corpus"]))).masks == ()


def test_rows_are_numbers():
    assert View(artefact=("a",), rows="17,3,3").chosen_rows == (3, 17)
    assert View(artefact=("a",)).chosen_rows == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows": "1,x"}, "--rows 1,x: give row numbers"),
        ({"rows": "-1"}, "--rows -1: give row numbers"),
    ],
)
def test_other_values_are_refused(given, message):
    with pytest.raises(FarspanError, match=message):
        View(artefact=("a",), **given)
