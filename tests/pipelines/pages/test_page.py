"""Ranges of texts."""

from __future__ import annotations

import pytest

from pipelines.pages.blocks import bounds, string_block


@pytest.mark.parametrize(
    ("start", "size", "expected"), [(0, 4, (0, 4)), (8, 4, (8, 10)), (-3, 4, (0, 4)), (99, 4, (10, 10)), (0, 0, (0, 0))]
)
def test_ranges_stay_inside(start, size, expected):
    assert bounds(start, 10, size) == expected


def test_a_string_is_cut():
    block = string_block("reference-0", "reference", "0123456789", 6, 100)
    assert [(piece.text, piece.start) for piece in block.pieces] == [("6789", 6)]
    assert (block.start, block.stop, block.total, block.unit) == (6, 10, 10, "characters")
