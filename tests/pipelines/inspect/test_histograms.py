"""The figure of farspan stats: its labels and axis limits, and that everything is inside its panel."""

from __future__ import annotations

import re
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest

from corpora.errors import FarspanError
from pipelines.inspect import histograms
from pipelines.inspect.distributions import Distribution
from pipelines.inspect.histograms import describe, draw, share_beyond

DRAWS = np.random.default_rng(0)


def lengths(count: int, middle: float, source: str = "", name: str = "document length") -> Distribution:
    values = np.exp(DRAWS.normal(np.log(middle), 0.8, count)).astype(np.int64) + 1
    return Distribution(name, values, "tokens", source)


@pytest.mark.parametrize(("length", "share"), [(4096, 0.5), (16384, 0.0)])
def test_shares_beyond_a_length(length: int, share: float):
    assert share_beyond(np.array([4096, 12288]), length) == share


@pytest.mark.parametrize(
    ("values", "unit", "words"),
    [
        ([100, 200, 300], "tokens", "median 200"),
        ([4096, 12288], "tokens", "median 8,192; 50% of tokens beyond 4k"),
        ([65536] * 3, "tokens", "median 64k; 94% of tokens beyond 4k, 75% beyond 16k"),
        ([0.0004, 0.00053, 0.1], "share", "median 0.053%"),
        ([0.1, 0.25, 0.9], "cosine", "median 0.25"),
        ([5000, 6000, 7000], "documents", "median 6,000"),
    ],
)
def test_the_line_above_a_panel(values: list, unit: str, words: str):
    assert describe(Distribution("x", np.array(values), unit)) == words


def drawn(found, path):
    """The figure before it is written, laid out."""
    with patch.object(histograms, "save") as save:
        draw(found, str(path))
    plt, figure, _ = save.call_args.args
    figure.draw_without_rendering()
    return plt, figure


def test_lines_stand_above_the_panels_one_over_the_other(tmp_path):
    """Measured by matplotlib: no line over the curves, another line, the title, or the edge of the figure."""
    found = [
        ("/a/documents", lengths(500, 6000, "articles-of-an-encyclopedia")),
        ("/a/documents", lengths(500, 110, "leads")),
        ("/b/documents", lengths(500, 110, "leads")),
        ("/b/documents", lengths(500, 400, name="part length")),
        ("/b/documents", Distribution("redundancy", DRAWS.random(300) / 100, "share")),
    ]
    plt, figure = drawn(found, tmp_path / "a.svg")
    for axis in figure.axes:
        boxes = [text.get_window_extent() for text in (*axis.texts, axis._left_title)]
        boxes.sort(key=lambda box: box.y0)
        assert boxes[0].y0 >= axis.get_window_extent().y1
        assert all(lower.y1 <= upper.y0 + 2 for lower, upper in pairwise(boxes))
        assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)
    words = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert re.search(r"a/documents articles-of-an-encyclopedia: median [\d,]+; \d+% of tokens beyond 4k", words)
    plt.close(figure)


def test_a_few_short_rows_leave_no_empty_decades(tmp_path):
    values = np.append(np.repeat(np.arange(4000, 4096), 5), 3)
    plt, figure = drawn([("corpus", Distribution("sequence length", values, "tokens"))], tmp_path / "a.svg")
    (axis,) = figure.axes
    assert axis.get_xlim()[0] > 3900
    assert axis.get_xlabel() == "tokens (0.2% outside)"
    ticks = [label.get_text() for label in axis.get_xticklabels()]
    assert len(set(ticks)) == len(ticks) > 2
    plt.close(figure)


def test_whole_numbers_have_a_bin_each_and_a_handful_no_histogram(tmp_path):
    few = Distribution("cluster size", np.array([3, 5, 9]), "documents")
    many = Distribution("references of a pair", DRAWS.integers(1, 4, 100), "references")
    plt, figure = drawn([("pairs", few), ("pairs", many)], tmp_path / "a.svg")
    first, second = figure.axes
    assert not first.patches
    assert [line.get_xdata().tolist() for line in first.lines] == [[3, 5, 9]]
    edges = np.unique(second.patches[0].get_xy()[:, 0])
    assert edges.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5][: len(edges)]
    plt.close(figure)


def test_of_many_sources_the_largest_are_drawn(tmp_path):
    found = [("documents", lengths(30 + number, 100, f"source-{number}")) for number in range(12)]
    plt, figure = drawn(found, tmp_path / "a.svg")
    words = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert set(re.findall(r"source-\d+", words)) == {f"source-{number}" for number in range(5, 12)}
    assert "5 more, with fewer values, left out" in words
    plt.close(figure)


def test_a_folder_without_rows_has_nothing_to_draw(tmp_path):
    with pytest.raises(FarspanError, match=r"no row, so nothing to draw; leave --figure out"):
        draw([("empty", Distribution("x", np.empty(0), "tokens"))], str(tmp_path / "a.png"))
