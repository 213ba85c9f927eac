"""Sizes of attention heads."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from trainer.model.layers.heads import HeadsConfig


def test_heads_share_the_width_of_the_model_unless_they_have_their_own():
    assert HeadsConfig(count=4).inner(64) == 64
    assert HeadsConfig(count=4, width=24).inner(64) == 96  # as in T5-small's relatives


def test_scores_are_divided_by_the_root_of_the_width_unless_they_are_not_scaled():
    assert HeadsConfig(count=4).scale is None  # the default of attention
    assert HeadsConfig(count=4, scaled=False).scale == 1.0


@pytest.mark.parametrize(("options", "said"), [({"count": 0}, "count is 0"), ({"count": 2, "width": 0}, "width is 0")])
def test_bad_heads_are_refused(options, said):
    with pytest.raises(FarspanError, match=rf"model.heads.{said}; it must be at least 1"):
        HeadsConfig(**options)
