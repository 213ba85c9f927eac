"""Options of linking: what each policy ignores, and what is refused."""

from __future__ import annotations

import math

import pytest

from corpora.errors import FarspanError
from corpora.linking.options import Linking


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_uses": 0}, "--max-uses 0: must be at least 1"),
        ({"min_similarity": float("nan")}, "--min-similarity nan"),
        ({"max_cosine": 1.5}, "--max-cosine 1.5"),
        ({"max_jaccard": -0.1}, "--max-jaccard -0.1"),
        ({"min_fill": float("nan")}, "--min-fill nan"),
        ({"min_fill": 1.1}, "--min-fill 1.1"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(FarspanError, match=message):
        Linking(**options)


def test_a_path_ignores_what_it_has_no_use_for():
    path = Linking(policy="path", max_uses=5, min_fill=0.9)
    assert path.resolved == Linking(policy="path", order="chain", max_uses=1, min_fill=0.0)
    assert Linking(policy="path", order="shuffle").resolved.order == "shuffle"
    nearest = Linking(policy="nearest", max_uses=5)
    assert nearest.resolved is nearest


def test_without_a_least_similarity_every_neighbour_counts():
    assert Linking().floor == -math.inf
    assert Linking(min_similarity=0.25).floor == 0.25
